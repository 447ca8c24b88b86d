"""The faculties that propose thoughts; those that can ask a model have a way on without one.

Their order is part of the attention contract: it breaks ties.
"""

from typing import Final

from noema.cognition.process import Process
from noema.cognition.processes.burst import Burst
from noema.cognition.processes.dialogue import Dialogue
from noema.cognition.processes.goal import GoalWatch
from noema.cognition.processes.perception import Perception
from noema.cognition.processes.planning import Planning
from noema.cognition.processes.recall import Recall
from noema.cognition.processes.reflection import Reflection
from noema.cognition.processes.surprise import Surprise

ALL: Final[tuple[Process, ...]] = (
    Dialogue(),
    GoalWatch(),
    Burst(),
    Surprise(),
    Perception(),
    Reflection(),
    Recall(),
    Planning(),
)
