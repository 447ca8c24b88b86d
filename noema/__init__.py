"""Noema: a daemon whose minds think in the open."""

from importlib.metadata import version

__version__ = version("noema")
