"""From a request to drafts: extraction, verification and classification. No database in here."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from noema.core.clock import Ids
from noema.core.errors import InvalidInput, TooLarge
from noema.memory.analyse import terms
from noema.memory.classify import (
    OPEN,
    Classifier,
    at_least,
    classify,
    inherited,
    is_failed,
)
from noema.memory.draft import Draft
from noema.memory.extract import VERBATIM, Extractor, extract
from noema.memory.frame import Frame
from noema.memory.mentions import mentions
from noema.memory.model import (
    MAX_MESSAGES,
    MICRO,
    EpistemicKind,
    Kind,
    Label,
    Rejection,
    Route,
    Sensitivity,
    TurnIn,
    Write,
)
from noema.memory.normalise import (
    conversation_id,
    copy_key,
    dedupe_key,
    normal_text,
    strip_annotation,
    transcript_id,
    turn_key,
)
from noema.memory.routes import epistemic_kind_of
from noema.memory.verify import check_content, check_speaker, check_text, check_time

MAX_SOURCE_CHARS: Final = 2_000
MAX_CONVERSATION_CHARS: Final = 500
MAX_DERIVED_FROM: Final = 100
DEFAULT_IMPORTANCE: Final = MICRO // 2
# A transcript is held in memory, and in one transaction.
MAX_TRANSCRIPT_CHARS: Final = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is to be written, what was turned away, and the conversation where there is one.

    A single turn has no session yet; `session` is the one it opens if it does not go on with one.
    """

    drafts: Sequence[Draft]
    rejections: Sequence[Rejection]
    conversation: UUID | None = None
    session: UUID | None = None
    is_single_turn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    index: int
    text: str
    kind: Kind
    epistemic_kind: EpistemicKind | None
    content: Mapping[str, Any]
    key: bytes
    event_time: datetime | None
    extraction: str = VERBATIM
    speaker: str | None = None
    position: int | None = None


def check(request: Write) -> None:
    """Raise InvalidInput for a request that makes no sense as a whole."""
    if (request.text is None) == (request.messages is None):
        raise InvalidInput("Give either a text or messages, and not both.", field="text")
    moment = request.event_time
    if moment is not None and moment.utcoffset() is None:
        raise InvalidInput(
            "event_time has no time zone; write 2024-05-01T12:00:00Z, or with an offset.",
            field="event_time",
        )
    importance = request.importance
    if importance is not None and not 0 <= importance <= 1:
        raise InvalidInput("importance is a number from 0 to 1.", field="importance")
    for name, value, most in (
        ("source", request.source, MAX_SOURCE_CHARS),
        ("conversation", request.conversation or "", MAX_CONVERSATION_CHARS),
    ):
        if len(value) > most:
            raise InvalidInput(f"{name} has at most {most:,} characters.", field=name)
    if request.conversation is not None and not request.conversation.strip():
        raise InvalidInput("The name of a conversation is not empty.", field="conversation")
    if len(request.derived_from) > MAX_DERIVED_FROM:
        raise InvalidInput(
            f"A memory is derived from at most {MAX_DERIVED_FROM} others.", field="derived_from"
        )
    if request.messages is not None:
        _check_transcript(request, request.messages)
    if request.refresh:
        _check_refresh(request)


def _check_transcript(request: Write, messages: Sequence[TurnIn]) -> None:
    if not messages:
        raise InvalidInput("The transcript has no messages.", field="messages")
    if len(messages) > MAX_MESSAGES:
        raise TooLarge(
            f"A transcript has at most {MAX_MESSAGES:,} messages; send it in parts, with the same "
            "conversation.",
            field="messages",
        )
    if sum(len(turn.text) for turn in messages) > MAX_TRANSCRIPT_CHARS:
        raise TooLarge(
            f"A transcript has at most {MAX_TRANSCRIPT_CHARS:,} characters; send it in parts, with "
            "the same conversation.",
            field="messages",
        )
    for name, is_given in (
        ("content", request.content is not None),
        ("supersedes", request.supersedes is not None),
        ("refresh", request.refresh),
    ):
        if is_given:
            raise InvalidInput(f"{name} goes with a text, not with messages.", field=name)


def _check_refresh(request: Write) -> None:
    if not request.source.strip():
        raise InvalidInput(
            "refresh replaces the memory of the same source; say which source.", field="source"
        )
    if request.supersedes is not None:
        raise InvalidInput(
            "refresh finds by itself what to supersede; leave one of the two out.",
            field="supersedes",
        )


async def prepare(
    frame: Frame,
    request: Write,
    *,
    route: Route,
    ids: Ids,
    extractor: Extractor | None,
    classifiers: Sequence[Classifier],
    extracts_outside: bool = True,
    inherits: Sequence[Label],
) -> Prepared:
    """Return what of the (checked) request may be written, labelled, and what may not.

    `extracts_outside`: the extractor is shown only what may be sent to a provider.
    """
    conversation = None
    binding: Sequence[Label] = inherits
    if request.messages is None:
        if extractor is not None:
            (found,) = await classify(classifiers, [request.text or ""])
            # What was read out of a text says no more than the text, and is protected as it is.
            binding = inherits if is_failed(found) else [*inherits, found]
            inherits = [*inherits, found]
            whole = _label(found, request, inherits)
            if extracts_outside and "provider" not in whole.destinations:
                extractor = None
        candidates, rejections = await _of_text(frame, request, extractor)
        if request.conversation is not None:
            conversation = conversation_id(frame.scope.writable, request.conversation)
    else:
        conversation = _conversation(frame, request, request.messages)
        candidates, rejections = _of_messages(frame, request, request.messages, conversation)
    labels = await classify(classifiers, [c.text for c in candidates]) if candidates else []
    session = None if request.messages is None else ids.new()
    importance = DEFAULT_IMPORTANCE
    if request.importance is not None:
        importance = round(request.importance * MICRO)
    is_single = request.messages is not None and len(request.messages) == 1
    return Prepared(
        drafts=[
            Draft(
                id=ids.new(),
                index=one.index,
                kind=one.kind,
                epistemic_kind=one.epistemic_kind or epistemic_kind_of(one.kind, route),
                text=one.text,
                content=one.content,
                key=one.key,
                terms=_terms(one),
                event_time=one.event_time,
                extraction=one.extraction,
                label=_label(label, request, inherits),
                binds=_label(OPEN if is_failed(label) else label, request, binding),
                importance=importance,
                conversation=conversation,
                session=session,
                position=one.position,
                speaker=one.speaker,
                mentions=mentions(one.text, speaker=one.speaker),
            )
            for one, label in zip(candidates, labels, strict=True)
        ],
        rejections=rejections,
        conversation=conversation,
        session=session,
        is_single_turn=is_single,
    )


def _terms(one: _Candidate) -> list[str]:
    found = terms(one.text)
    return found if one.speaker is None else [*terms(one.speaker), *found]


def _label(label: Label, request: Write, inherits: Sequence[Label]) -> Label:
    if request.sensitive:
        label = at_least(label, Sensitivity.CONFIDENTIAL)
    return inherited(label, *inherits) if inherits else label


async def _of_text(
    frame: Frame, request: Write, extractor: Extractor | None
) -> tuple[list[_Candidate], list[Rejection]]:
    kind = request.kind or Kind.FACT
    text = request.text or ""
    most = frame.policy.max_text_chars
    content: dict[str, Any] = {}
    fault = check_text(text, most=most) or check_time(request.event_time, frame.now)
    if fault is None and request.content is not None:
        content, fault = check_content(kind, request.content)
    if fault is not None:
        return [], [Rejection(index=0, reason=fault)]
    # What comes with its content has been taken apart already; a copy is kept as it is.
    is_whole = request.verbatim or request.refresh or request.content is not None
    found, extraction = await extract(
        None if is_whole or request.supersedes else extractor, text, kind=kind, most=most
    )
    candidates = []
    for index, one in enumerate(found):
        plain = strip_annotation(one.text)
        its_kind = one.kind or kind
        if one.content is not None:
            content, _ = check_content(its_kind, one.content)
        key = dedupe_key(plain)
        if request.refresh:
            key = copy_key(plain, kind=its_kind, source=request.source)
        candidates.append(
            _Candidate(
                index=index,
                text=plain,
                kind=its_kind,
                epistemic_kind=one.epistemic_kind or request.epistemic_kind,
                content=content,
                key=key,
                event_time=request.event_time,
                extraction=extraction,
            )
        )
    return candidates, []


def _conversation(frame: Frame, request: Write, messages: Sequence[TurnIn]) -> UUID:
    namespace = frame.scope.writable
    if request.conversation is not None:
        return conversation_id(namespace, request.conversation)
    return transcript_id(namespace, [(m.speaker, m.text, _aware(m.at)) for m in messages])


def _aware(moment: datetime | None) -> datetime | None:
    # One without a zone is rejected further on, and is no moment to tell transcripts apart by.
    return None if moment is None or moment.utcoffset() is None else moment


def _of_messages(
    frame: Frame, request: Write, messages: Sequence[TurnIn], conversation: UUID
) -> tuple[list[_Candidate], list[Rejection]]:
    candidates: list[_Candidate] = []
    rejections: list[Rejection] = []
    times: Counter[tuple[str, str, datetime | None]] = Counter()
    for index, turn in enumerate(messages):
        fault = (
            check_speaker(turn.speaker)
            or check_text(turn.text, most=frame.policy.max_text_chars)
            or check_time(turn.at or request.event_time, frame.now)
        )
        if fault is not None:
            rejections.append(Rejection(index=index, reason=fault))
            continue
        plain = strip_annotation(turn.text)
        same = (normal_text(turn.speaker), normal_text(plain), turn.at)
        candidates.append(
            _Candidate(
                index=index,
                text=plain,
                kind=request.kind or Kind.EPISODE,
                epistemic_kind=request.epistemic_kind,
                content={},
                key=turn_key(
                    plain,
                    conversation=conversation,
                    speaker=turn.speaker,
                    at=turn.at,
                    occurrence=times[same],
                ),
                event_time=turn.at or request.event_time,
                speaker=turn.speaker.strip(),
                position=index,
            )
        )
        times[same] += 1
    return candidates, rejections
