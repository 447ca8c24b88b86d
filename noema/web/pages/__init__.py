"""temporary"""
from noema.web.api.events import stream
from noema.web.call import Endpoint

ROUTES: tuple[Endpoint, ...] = ()
