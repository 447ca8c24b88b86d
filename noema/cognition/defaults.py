"""The settings a new mind starts with."""

from typing import Final

from noema.cognition import habits
from noema.cognition.model import MindSettings

DEFAULTS: Final = MindSettings(
    # What decides over a log line (novelty, surprise, intensity, urgency, habituation, threshold)
    # is calibrated as one; see `habits`. The third like line scores 0.2 at most, the second 0.53 at
    # least, so whatever is added to every line alike has to stay well below the gap.
    weights={
        "intensity": habits.WEIGHTS["intensity"],
        "novelty": habits.WEIGHTS["novelty"],
        "urgency": habits.WEIGHTS["urgency"],
        "relevance": 600_000,
        "goal": 1_200_000,
        "surprise": habits.WEIGHTS["surprise"],
        "confidence": 100_000,
        "credibility": 100_000,
        "social": 2_000_000,
        "valence": 100_000,
        "recency": 20_000,
        "pin": 3_000_000,
        "cost": 200_000,
        "fatigue": 20_000,
        "habituation": habits.WEIGHTS["habituation"],
    },
    threshold=habits.THRESHOLD,
    capacity=7,
    slot_half_life_s=600,
    batch=100,
    quota=400,
    pending_limit=256,
    pending_cycles=256,
    reflect_every=20,
)
