"""The routes of the memory syscalls, each with the name its audit rows bear."""

from typing import Final

from noema.core.identity import ConsoleRole
from noema.memory.model import Explain, PolicyDocument, Read, Share, Write
from noema.memory.relationships import Relate
from noema.web import mem_forms
from noema.web.api import mem, mem_manage
from noema.web.call import Endpoint

_NONE: Final = ConsoleRole.NONE
_WRITE_BYTES: Final = 16 * 1024 * 1024

# An agent's token has no console role: what one may do here the memory role says.
MEM: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        method="POST", path="/v1/mem/read", handler=mem.read, need="read", role=_NONE,
        takes=Read, op="mem.read",
        summary="One memory by id; with history what it superseded and what superseded it.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/search", handler=mem.search, need="read", role=_NONE,
        takes=mem_forms.SearchBody, op="mem.search",
        summary="The memories that answer a query best, of those the caller may read.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/write", handler=mem.write, need="write", role=_NONE,
        takes=Write, is_keyed=True, limit_bytes=_WRITE_BYTES, op="mem.write",
        summary="Write a text, or the messages of a transcript; 202 with a ticket where async.",
    ),
    Endpoint(
        method="GET", path="/v1/mem/tickets/{id}", handler=mem.ticket, need="read", role=_NONE,
        op="mem.ticket", summary="How far a write that was accepted has come, and its result.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/stats", handler=mem.stats, need="read", role=_NONE,
        op="mem.stats", summary="Counts, fault-hit rate, average working set, audit volume.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/pin", handler=mem.pin, need="write", role=_NONE,
        takes=mem_forms.MemoryBody, op="mem.pin",
        summary="Pin a memory into every working set of one's namespace.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/unpin", handler=mem.unpin, need="write", role=_NONE,
        takes=mem_forms.MemoryBody, op="mem.unpin", summary="End a pin.",
    ),
    Endpoint(
        method="GET", path="/v1/mem/pins", handler=mem.pins, need="read", role=_NONE,
        op="mem.pins", summary="The pins of one's namespace and those above it, oldest first.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/policy", handler=mem.policy, need="read", role=_NONE,
        op="mem.policy", summary="The memory policy that holds where one acts.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/policy-ack", handler=mem.policy_ack, need="write", role=_NONE,
        takes=mem_forms.AckBody, op="mem.policy-ack",
        summary="Acknowledge the directives, by their digest.",
    ),
    Endpoint(
        method="GET", path="/v1/mem/policies/{namespace:path}", handler=mem.policy_of, need="read",
        role=_NONE, op="mem.policy-show", summary="What a namespace itself sets.",
    ),
    Endpoint(
        method="PUT", path="/v1/mem/policies/{namespace:path}", handler=mem.set_policy,
        need="write", role=_NONE, takes=PolicyDocument, op="mem.policy-set",
        summary="Set a namespace's policy; for admins and owners of it or above it.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/share", handler=mem.share, need="write", role=_NONE,
        takes=Share, status=201, is_keyed=True, op="mem.share",
        summary="Let a namespace or an actor read a memory or a subtree.",
    ),
    Endpoint(
        method="GET", path="/v1/mem/grants", handler=mem.grants, need="read", role=_NONE,
        query=("ended",), op="mem.shares", summary="Grants by and to the caller, newest first.",
    ),
    Endpoint(
        method="DELETE", path="/v1/mem/grants/{id}", handler=mem.unshare, need="write", role=_NONE,
        op="mem.unshare", summary="End a grant.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/explain", handler=mem.explain, need="read", role=_NONE,
        takes=Explain, op="mem.explain",
        summary="Why one sees a memory, or does not; for auditors through other eyes too.",
    ),
    Endpoint(
        method="GET", path="/v1/mem/memories", handler=mem.memories, need="read", role=_NONE,
        query=("kinds", "status", "before", "limit"), op="mem.browse",
        summary="All that one may read, newest first, closed memories too.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/retract", handler=mem_manage.retract, need="write",
        role=_NONE, takes=mem_forms.RetractBody, op="mem.retract",
        summary="Withdraw a memory and everything derived from it.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/restore", handler=mem_manage.restore, need="write",
        role=_NONE, takes=mem_forms.RestoreBody, op="mem.restore", summary="Undo a retraction.",
    ),
    Endpoint(
        method="GET", path="/v1/mem/conflicts", handler=mem_manage.conflicts, need="read",
        role=_NONE, query=("open", "limit"), op="mem.conflicts",
        summary="What the conflict check found, newest first.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/conflicts/{id}/resolve", handler=mem_manage.resolve,
        need="write", role=_NONE, takes=mem_forms.OutcomeBody, op="mem.conflict-resolve",
        summary="Decide a conflict: newcomer_wins, incumbent_wins, newcomer_disputed or coexist.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/conflicts/{id}/revert", handler=mem_manage.revert,
        need="write", role=_NONE, op="mem.conflict-revert",
        summary="Undo what was decided about a conflict.",
    ),
    Endpoint(
        method="GET", path="/v1/mem/entities", handler=mem_manage.entities, need="read",
        role=_NONE, query=("text", "limit"), op="mem.entities",
        summary="What memories speak of, newest first.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/entities/{id}/merge", handler=mem_manage.merge,
        need="write", role=_NONE, takes=mem_forms.MergeBody, status=201, op="mem.entity-merge",
        summary="Let one entity stand at another; the answer's id undoes it.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/entities/{id}/refuse", handler=mem_manage.refuse,
        need="write", role=_NONE, takes=mem_forms.RefuseBody, op="mem.entity-refuse",
        summary="Say that two entities with similar names are not one.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/entities/{id}/aliases", handler=mem_manage.alias,
        need="write", role=_NONE, takes=mem_forms.AliasBody, status=201, op="mem.entity-alias",
        summary="Give an entity one more name.",
    ),
    Endpoint(
        method="GET", path="/v1/mem/entity-merges", handler=mem_manage.merges, need="read",
        role=_NONE, query=("limit",), op="mem.entity-merges",
        summary="The merges that hold, newest first.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/entity-merges/{id}/undo", handler=mem_manage.unmerge,
        need="write", role=_NONE, op="mem.entity-unmerge", summary="Undo a merge.",
    ),
    Endpoint(
        method="GET", path="/v1/mem/entity-suggestions", handler=mem_manage.suggestions,
        need="read", role=_NONE, query=("limit",), op="mem.entity-suggestions",
        summary="Which entities may be one, likeliest first.",
    ),
    Endpoint(
        method="POST", path="/v1/mem/relate", handler=mem_manage.relate, need="write", role=_NONE,
        takes=Relate, status=201, op="mem.relate", summary="Relate two memories or two entities.",
    ),
    Endpoint(
        method="DELETE", path="/v1/mem/relationships/{id}", handler=mem_manage.unrelate,
        need="write", role=_NONE, op="mem.unrelate", summary="End a relationship.",
    ),
    Endpoint(
        method="GET", path="/v1/mem/graph", handler=mem_manage.graph, need="read", role=_NONE,
        query=("centre", "limit", "kinds"), op="mem.graph",
        summary="What surrounds a memory or an entity, or what is newest; capped.",
    ),
)  # fmt: skip
