"""Mind state as a fold over the mind's own log: pure, versioned, the same live and in a replay.

A cycle is `observe` (take in what came, group it, fix the snapshot) and, after attention decided,
`conclude` (fill the workspace, tire processes, keep what lost only on K, leave the mode if one of
its exits says so). Crash recovery and verify call the same two functions with what was recorded.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal
from uuid import UUID

import msgspec

from noema.cognition import habits
from noema.cognition.attention import FATIGUE_HALF_LIFE_US, RECALL_HALF_LIFE_US
from noema.cognition.habits import TopicStats
from noema.cognition.keeping import Keep, choose
from noema.cognition.model import (
    MICRO,
    Brain,
    Exit,
    Goal,
    Group,
    MindSettings,
    Mode,
    Outcome,
    Question,
    RecallHabit,
    Slot,
    Stimulus,
)
from noema.cognition.topic import topic_key
from noema.core.clock import to_micros
from noema.events.model import Event

STATE_VERSION: Final = 1
TOPIC_CAP: Final = 4_096
GROUP_SAMPLE: Final = 8
GROUP_IDS: Final = 1_000
TEXT_KEPT: Final = 1_000
RECENT_KEPT: Final = 40
QUESTIONS_KEPT: Final = 500
GOALS_KEPT: Final = 50
PENDING_FACTOR: Final = 3
"""Of what waits, this many times K compete in a cycle; the rest waits its turn."""

DAY_US: Final = 86_400 * MICRO
RECALL_PAUSE_US: Final = 2 * MICRO
"""How long memory is not asked again after it answered, by the mind's own time."""

RECALL_RETRY_US: Final = 30 * MICRO
"""How long it is left alone after it did not."""

RECALLED_KEPT: Final = 256
FADED: Final = 20_000
FATIGUE_STEP: Final = 50_000
REDACTED_TEXT: Final = "[redacted]"

Modes = Mapping[tuple[str, int], Mode]
Recall = Literal["answered", "failed"]


class MindState(msgspec.Struct, frozen=True, kw_only=True):
    """All that a mind carries from one cycle to the next. Bounded, whatever is fed to it.

    `cursor` and `control` are the positions up to which stimuli and what people sent are observed.
    """

    version: int = STATE_VERSION
    settings: MindSettings
    settings_version: int
    cycle: int = 0
    cursor: int = 0
    control: int = 0
    mode: str = "awake"
    mode_version: int = 1
    mode_epoch: int = 0
    mode_since_us: int = 0
    mode_until_us: int | None = None
    quiet_since_us: int = 0
    quiet_timers: int = 0
    focus: str = ""
    goals: tuple[Goal, ...] = ()
    slots: tuple[Slot, ...] = ()
    topics: dict[str, TopicStats] = msgspec.field(default_factory=dict)
    total: TopicStats | None = None
    pending: dict[str, Group] = msgspec.field(default_factory=dict)
    questions: tuple[Question, ...] = ()
    fatigue: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    admitted_since_reflection: int = 0
    observed_since_reflection: int = 0
    recent: tuple[str, ...] = ()
    reflected_us: int = 0
    recall: RecallHabit = RecallHabit()
    keeping: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)


class ModeChange(msgspec.Struct, frozen=True, kw_only=True):
    """The mind left its mode by one of the mode's exits."""

    left: str
    entered: str
    entered_version: int
    on: str


class Concluded(msgspec.Struct, frozen=True, kw_only=True):
    """The state after a cycle, and what else the cycle has to record."""

    state: MindState
    mode_change: ModeChange | None
    expired: tuple[Group, ...]
    keeps: tuple[Keep, ...] = ()


class _Fold:
    """The working copy of one observe; nothing of it is seen before it is whole."""

    def __init__(self, state: MindState) -> None:
        self.state = state
        self.topics = dict(state.topics)
        self.total = state.total
        self.fresh: dict[str, Group] = {}
        self.questions = list(state.questions)
        self.goals = list(state.goals)
        self.changes: dict[str, object] = {}
        self.observed = 0

    def stimulus(self, event: Event) -> None:
        text = REDACTED_TEXT if event.is_redacted else str(event.content.get("text", ""))
        stimulus = Stimulus(
            id=event.id,
            text=text[:TEXT_KEPT],
            kind=str(event.data.get("kind", "line")),
            at_us=_occurred_us(event),
            urgency=int(event.data.get("urgency", 0)),
            pin=bool(event.data.get("pin", False)),
        )
        self._take(stimulus, topic_key(text))

    def message(self, event: Event) -> None:
        text = REDACTED_TEXT if event.is_redacted else str(event.content.get("text", ""))
        stimulus = Stimulus(
            id=event.id,
            text=text[:TEXT_KEPT],
            kind="message",
            at_us=to_micros(event.occurred_at),
            urgency=MICRO // 2,
            speaker=str(event.content.get("speaker", "")),
        )
        question = Question(
            id=event.id,
            conversation=UUID(event.data["conversation"]),
            speaker=stimulus.speaker,
            text=stimulus.text,
            at_us=stimulus.at_us,
        )
        self.questions = [*self.questions, question][-QUESTIONS_KEPT:]
        # Two people who say the same are not a flood: each message is a topic of its own.
        self._take(stimulus, f"message {event.id}")

    def _take(self, stimulus: Stimulus, topic: str) -> None:
        self.observed += 1
        at_us = stimulus.at_us
        before = self.topics.get(topic)
        total_before = habits.recent(self.total, at_us)
        self.topics[topic] = habits.observe(before, at_us)
        self.total = habits.observe(self.total, at_us)
        known = self.fresh.get(topic)
        if known is None:
            self.fresh[topic] = Group(
                topic=topic,
                stimuli=(stimulus,),
                ids=(stimulus.id,),
                count=1,
                before=before,
                total_before=total_before,
                since_us=at_us,
            )
        else:
            self.fresh[topic] = _joined(known, (stimulus,), (stimulus.id,), 1)

    def command(self, event: Event) -> None:
        data = event.data
        if event.type == "message.received":
            self.message(event)
        elif event.type == "mode.set":
            until = data.get("until_us")
            self.changes |= {
                "mode": data["mode"],
                "mode_version": data["version"],
                "mode_epoch": data["epoch"],
                "mode_since_us": to_micros(event.occurred_at),
                "mode_until_us": None if until is None else int(until),
                "quiet_timers": 0,
                "focus": str(event.content.get("focus", "")),
            }
        elif event.type == "settings.set":
            self.changes |= {
                "settings": msgspec.convert(data["settings"], MindSettings),
                "settings_version": data["version"],
            }
        elif event.type == "goal.set":
            text = REDACTED_TEXT if event.is_redacted else str(event.content.get("text", ""))
            goal = Goal(id=UUID(data["goal"]), text=text, priority=int(data["priority"]))
            self.goals = [*self.goals, goal][-GOALS_KEPT:]
        elif event.type == "goal.closed":
            self.goals = [g for g in self.goals if str(g.id) != data["goal"]]


def _occurred_us(event: Event) -> int:
    # A topic's clock never goes back, so one line from the far future would stop it for good.
    latest = to_micros(event.recorded_at) + DAY_US
    return min(to_micros(event.occurred_at), latest)


def _joined(group: Group, stimuli: Sequence[Stimulus], ids: Sequence[UUID], count: int) -> Group:
    merged = (*group.stimuli, *stimuli)
    if len(merged) > GROUP_SAMPLE:
        merged = (*merged[: GROUP_SAMPLE - 1], merged[-1])
    return msgspec.structs.replace(
        group,
        stimuli=merged,
        ids=(*group.ids, *ids)[:GROUP_IDS],
        count=group.count + count,
    )


def room(state: MindState) -> int:
    """Return how many stimuli the next observe may take: fewer where much is pending already."""
    free = state.settings.pending_limit - len(state.pending)
    return max(1, min(state.settings.batch, free))


def observe(
    state: MindState,
    control: Sequence[Event],
    stimuli: Sequence[Event],
    *,
    now_us: int,
    trigger: str,
    modes: Modes,
) -> tuple[MindState, Brain]:
    """Take in what came, oldest first, and return the new state and the snapshot to think with.

    `control` are the events of the control types after `state.control`, `stimuli` the stimuli after
    `state.cursor`, each without a gap.
    """
    fold = _Fold(state)
    for event in control:
        fold.command(event)
    for event in stimuli:
        fold.stimulus(event)
    cursor = stimuli[-1].seq if stimuli else state.cursor
    # A topic that came again while it waited is the same matter, as rare as when it first came.
    pending = dict(state.pending)
    fresh = dict(fold.fresh)
    for topic in fold.fresh:
        if topic in pending:
            newer = fresh.pop(topic)
            pending[topic] = _joined(pending[topic], newer.stimuli, newer.ids, newer.count)
    if fold.observed or not state.cycle:
        # A mind that has just begun has not been quiet since 1970.
        fold.changes["quiet_since_us"] = now_us
        fold.changes["quiet_timers"] = 0
    state = msgspec.structs.replace(
        state,
        cycle=state.cycle + 1,
        cursor=cursor,
        control=control[-1].seq if control else state.control,
        topics=habits.evict(fold.topics, TOPIC_CAP),
        total=fold.total,
        pending=pending,
        questions=tuple(fold.questions),
        goals=tuple(fold.goals),
        observed_since_reflection=state.observed_since_reflection + fold.observed,
        **fold.changes,
    )
    mode = modes[state.mode, state.mode_version]
    competing = _turn_of(pending, touched=set(fold.fresh), most=max(1, mode.k) * PENDING_FACTOR)
    brain = Brain(
        now_us=now_us,
        cycle=state.cycle,
        trigger=trigger,
        mode=mode,
        settings=state.settings,
        settings_version=state.settings_version,
        groups=(*competing, *fresh.values()),
        questions=state.questions,
        slots=_decayed(state.slots, now_us, state.settings),
        goals=state.goals,
        focus=state.focus,
        topics=state.topics,
        total=state.total,
        fatigue=state.fatigue,
        admitted_since_reflection=state.admitted_since_reflection,
        observed_since_reflection=state.observed_since_reflection,
        recent=state.recent,
        reflected_us=state.reflected_us,
        log_before=max(cursor, state.control),
        recall=state.recall,
    )
    return state, brain


def _turn_of(pending: Mapping[str, Group], *, touched: set[str], most: int) -> list[Group]:
    # The most urgent first, then who has waited longest; what just came again is not kept waiting.
    ranked = sorted(
        pending.values(),
        key=lambda g: (
            g.topic not in touched,
            -max(s.urgency for s in g.stimuli),
            -g.waited,
            g.since_us,
            g.topic,
        ),
    )
    return ranked[:most]


def _decayed(slots: Sequence[Slot], now_us: int, settings: MindSettings) -> tuple[Slot, ...]:
    half_life_us = settings.slot_half_life_s * MICRO
    kept = []
    for slot in slots:
        strength = habits.decay(MICRO, now_us - slot.admitted_us, half_life_us)
        if strength >= FADED:
            kept.append(msgspec.structs.replace(slot, strength=strength))
    return tuple(kept)


def conclude(
    state: MindState,
    brain: Brain,
    outcome: Outcome,
    thoughts: Sequence[UUID],
    modes: Modes,
    *,
    recall: Recall | None = None,
) -> Concluded:
    """Return the state after the cycle. `thoughts` are the ids of the admitted, best first.

    `recall` says whether memory was asked in this cycle, and how that went.
    """
    admitted = outcome.admitted
    topics = dict(state.topics)
    fatigue = dict(state.fatigue)
    groups = {g.topic: g for g in brain.groups}
    answered = {s.candidate.replies_to for s in admitted}
    reflected = any(s.candidate.process == "reflection" for s in admitted)
    slots = list(brain.slots)
    for scored, thought in zip(admitted, thoughts, strict=True):
        candidate = scored.candidate
        group = groups.get(candidate.topic)
        if group is not None:
            stats = topics.get(candidate.topic) or habits.observe(None, group.latest.at_us)
            topics[candidate.topic] = habits.admit(stats, group.latest.at_us)
        level, at_us = fatigue.get(candidate.process, (0, 0))
        level = habits.decay(level, brain.now_us - at_us, FATIGUE_HALF_LIFE_US)
        fatigue[candidate.process] = (min(MICRO, level + FATIGUE_STEP), brain.now_us)
        slots = [s for s in slots if s.topic != candidate.topic]
        slots.append(
            Slot(
                thought=thought,
                process=candidate.process,
                topic=candidate.topic,
                text=candidate.text[:TEXT_KEPT],
                cycle=state.cycle,
                admitted_us=brain.now_us,
                strength=MICRO,
                is_local=candidate.is_local,
            )
        )
    # The strongest stay; of equals the ones admitted last, so that a full workspace moves on.
    ranked = sorted(enumerate(slots), key=lambda i: (-i[1].strength, -i[0]))
    kept = sorted(i for i, _ in ranked[: state.settings.capacity])
    pending, expired = _pending_after(state, brain, outcome)
    keeps, keeping = choose(brain, outcome, state.keeping)
    recent = tuple(
        f"{s.candidate.process}: {s.candidate.text[:160]}"
        for s in admitted
        if s.candidate.process != "reflection"
    )
    state = msgspec.structs.replace(
        state,
        slots=tuple(slots[i] for i in kept),
        topics=topics,
        fatigue=fatigue,
        pending=pending,
        questions=tuple(q for q in state.questions if q.id not in answered),
        admitted_since_reflection=0 if reflected else state.admitted_since_reflection + len(recent),
        observed_since_reflection=0 if reflected else state.observed_since_reflection,
        recent=() if reflected else (*state.recent, *recent)[-RECENT_KEPT:],
        reflected_us=brain.now_us if reflected else state.reflected_us,
        quiet_timers=state.quiet_timers + 1 if brain.trigger == "timer" else state.quiet_timers,
        recall=_recall_after(brain, outcome, recall),
        keeping=keeping,
    )
    change = _exit(state, brain, modes)
    if change is not None:
        mode = modes[change.entered, change.entered_version]
        state = msgspec.structs.replace(
            state,
            mode=mode.name,
            mode_version=mode.version,
            mode_since_us=brain.now_us,
            mode_until_us=None if mode.expires_s is None else brain.now_us + mode.expires_s * MICRO,
            quiet_timers=0,
            focus="" if mode.name != "focused" else state.focus,
        )
    return Concluded(state=state, mode_change=change, expired=expired, keeps=keeps)


def _recall_after(brain: Brain, outcome: Outcome, recall: Recall | None) -> RecallHabit:
    now_us, habit = brain.now_us, brain.recall
    brought_back = [s.candidate.memory for s in outcome.admitted if s.candidate.memory is not None]
    if brought_back:
        levels = dict(habit.levels)
        for memory in brought_back:
            level, at_us = levels.pop(str(memory), (0, 0))
            level = habits.decay(level, now_us - at_us, RECALL_HALF_LIFE_US)
            levels[str(memory)] = ((level + MICRO) // 2, now_us)
        # The order is that of the last time, so the ones left out are those not met for longest.
        kept = dict(list(levels.items())[-RECALLED_KEPT:])
        habit = msgspec.structs.replace(habit, levels=kept)
    if recall is None:
        return habit
    pause_us = RECALL_PAUSE_US if recall == "answered" else RECALL_RETRY_US
    habit = msgspec.structs.replace(habit, due_us=now_us + pause_us)
    if recall == "failed":
        return habit
    return msgspec.structs.replace(habit, asked_us=now_us, focus=brain.focus)


def _pending_after(
    state: MindState, brain: Brain, outcome: Outcome
) -> tuple[dict[str, Group], tuple[Group, ...]]:
    won = {s.candidate.topic for s in outcome.admitted}
    # What would have won but for K, a quota or the mode is not forgotten.
    ignited = {
        s.candidate.topic
        for s in outcome.scored
        if s.gate in (None, "quota", "mode") and not s.admitted and s.score >= outcome.threshold
    }
    competed = {g.topic for g in brain.groups}
    pending = {t: g for t, g in state.pending.items() if t not in competed}
    expired = []
    for group in brain.groups:
        if group.topic in won or group.topic not in ignited:
            continue
        if group.waited + 1 >= state.settings.pending_cycles:
            expired.append(group)
        else:
            pending[group.topic] = msgspec.structs.replace(group, waited=group.waited + 1)
    # Messages are taken whatever waits already, so that a flood of them could pass the limit.
    if len(pending) > state.settings.pending_limit:
        ranked = _turn_of(pending, touched=set(), most=len(pending))
        surplus = ranked[state.settings.pending_limit :]
        expired.extend(pending.pop(group.topic) for group in surplus)
    return pending, tuple(expired)


def _exit(state: MindState, brain: Brain, modes: Modes) -> ModeChange | None:
    for way in brain.mode.exits:
        if _applies(way, state, brain):
            version = max(v for name, v in modes if name == way.to)
            return ModeChange(
                left=brain.mode.name, entered=way.to, entered_version=version, on=way.on
            )
    return None


def _applies(way: Exit, state: MindState, brain: Brain) -> bool:
    if way.on == "expired":
        return state.mode_until_us is not None and brain.now_us >= state.mode_until_us
    if way.on == "quiet":
        since = max(state.quiet_since_us, state.mode_since_us)
        return not brain.groups and brain.now_us - since >= (way.after_s or 0) * MICRO
    if way.on == "stimulus":
        return any(s.kind != "message" for g in brain.groups for s in g.stimuli)
    if way.on == "message":
        return bool(brain.questions)
    return brain.trigger == way.on


def modes_then(modes: Modes, entered: tuple[str, int] | None) -> Modes:
    """Return the modes without those that are newer than the one a recorded cycle entered.

    A cycle enters the newest version of a mode that there is, and a newer one may have come since.
    """
    if entered is None or entered not in modes:
        return modes
    name, version = entered
    return {key: mode for key, mode in modes.items() if key[0] != name or key[1] <= version}


def timer_after(state: MindState, mode: Mode, now_us: int) -> int | None:
    """Return when the next cycle is due if nothing comes, microseconds since 1970; None for never.

    A mode with a range waits longer after each quiet cycle, half as long again every time.
    """
    due = None
    if mode.timer_min_s is not None:
        longest = mode.timer_max_s or mode.timer_min_s
        wait_us = mode.timer_min_s * MICRO
        for _ in range(min(state.quiet_timers, 16)):
            wait_us = min(wait_us * 3 // 2, longest * MICRO)
        due = now_us + wait_us
    until_us = state.mode_until_us
    if until_us is not None and mode.does_expire and (due is None or until_us < due):
        due = max(until_us, now_us)
    return due
