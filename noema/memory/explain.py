"""mem_explain: why do I see this, why do I not; and, for who watches, why does somebody else."""

from datetime import datetime
from typing import Final

from noema.core.errors import Denied, NotFound
from noema.core.identity import check_namespace
from noema.db.tx import Database
from noema.memory.frame import Frame
from noema.memory.lineage import doubts
from noema.memory.model import Explain, Explanation, Grant
from noema.memory.reading import Concealed
from noema.memory.rights import may_look_through
from noema.memory.scope import aware, by_place, check_actor, in_subtree, is_above, tenant_of
from noema.memory.store import reading
from noema.memory.store import shares as store

_WHEN: Final = "%Y-%m-%d %H:%M:%S UTC"


class Explainer:
    """Goes through the rules one by one and says in words what each came to."""

    def __init__(self, *, db: Database) -> None:
        self._db = db

    async def explain(self, frame: Frame, request: Explain) -> Explanation:
        """Return the verdict and its reasons.

        Of a memory one does not see one learns nothing, unless it is in the subtree that one
        watches over; through other eyes one looks only there.
        """
        who = frame.who
        frame.target = f"memory:{request.id}"
        at = aware(request.as_of, "as_of") or frame.now
        namespace, actor = _viewer(frame, request)
        is_other = (namespace, actor) != (who.namespace, who.actor)
        if is_other and not may_look_through(who, namespace):
            raise Denied(
                "Only auditors, admins and owners look through other eyes, in their own subtree."
            )
        async with self._db.reading() as tx:
            place = await reading.place_of(tx.conn, request.id)
            grants = (
                []
                if place is None
                else await store.that_open(
                    tx.conn, namespace, actor, memory=request.id, place=place[0]
                )
            )
            doubted = () if place is None else await doubts(tx, frame.scope, request.id)
        if place is None:
            raise NotFound("memory", request.id)
        row_namespace = place[0]
        if not frame.scope.sees(row_namespace, request.id) and not may_look_through(
            who, row_namespace
        ):
            raise Concealed("memory", request.id)
        open_now = [g for g in grants if _holds(g, at)]
        is_by_place = is_above(row_namespace, namespace)
        reasons = [_by_place(row_namespace, namespace)]
        reasons += [_of_grant(g, at) for g in grants]
        if not grants:
            reasons.append("No grant opens it to them, and none ever did.")
        is_visible = is_by_place or bool(open_now)
        is_found, why = _found_by_search(place[1], place[2], place[3], at)
        reasons.append(why)
        reasons += doubted
        frame.detail = (
            f"visible={'yes' if is_visible else 'no'} view={namespace} {actor}"
            if is_other
            else f"visible={'yes' if is_visible else 'no'}"
        )
        return Explanation(
            id=request.id,
            viewer_namespace=namespace,
            viewer_actor=actor,
            is_visible=is_visible,
            is_found_by_search=is_visible and is_found,
            reasons=tuple(reasons),
            namespaces=by_place(namespace),
            grants=tuple(open_now),
        )


def _viewer(frame: Frame, request: Explain) -> tuple[str, str]:
    namespace, actor = request.view_namespace, request.view_actor
    return (
        frame.who.namespace if namespace is None else check_namespace(namespace),
        frame.who.actor if actor is None else check_actor(actor, "view_actor"),
    )


def _holds(grant: Grant, at: datetime) -> bool:
    return grant.valid_from <= at and (grant.valid_to is None or grant.valid_to > at)


def _by_place(row: str, viewer: str) -> str:
    if row == viewer:
        return f"It lives in {row}, the very namespace they act in."
    if is_above(row, viewer):
        return f"It lives in {row}, above {viewer}: one sees what is above."
    if in_subtree(row, viewer):
        return f"It lives in {row}, below {viewer}: one does not see what is below."
    if tenant_of(row) != tenant_of(viewer):
        return f"It lives in {row}, which belongs to another tenant than {viewer}."
    return f"It lives in {row}, which is neither {viewer} nor above it."


def _of_grant(grant: Grant, at: datetime) -> str:
    receiver = grant.to_namespace or grant.to_actor
    what = "this memory" if grant.memory is not None else f"all of {grant.subtree}"
    told = f"Grant {grant.id}: {grant.granted_by} let {receiver} read {what}"
    if grant.valid_from > at:
        return f"{told}, but only from {grant.valid_from.strftime(_WHEN)} on."
    if grant.valid_to is None:
        return f"{told}."
    until = grant.valid_to.strftime(_WHEN)
    if grant.valid_to > at:
        return f"{told} until {until}."
    ended = "expired" if grant.revoked_by is None else f"was ended by {grant.revoked_by}"
    return f"{told}, but that {ended} at {until}."


def _found_by_search(
    status: str, since: datetime, until: datetime | None, at: datetime
) -> tuple[bool, str]:
    if status != "active":
        why = {
            "disputed": "It is disputed: a conflict with another memory put it into quarantine",
            "retracted": "It was retracted, or something that it came from was",
        }[status]
        return False, f"{why}, so that a search finds it only with validOnly false."
    if since > at:
        return False, f"It is believed only from {since.strftime(_WHEN)} on."
    if until is not None and until <= at:
        return False, (
            f"It was superseded at {until.strftime(_WHEN)}, so that a search finds it only with "
            "validOnly false, or asOf a time before."
        )
    return True, "It is current, so that a search can find it."
