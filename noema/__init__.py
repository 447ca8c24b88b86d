"""Noema: a daemon whose minds think in the open.

From stimulus to action, module by module:

    web.api.minds, cli.commands.feed   a line or a message comes in
    cognition.minds                    is checked, and becomes an event
    events.writer, events.store        is committed with all else that waits; NOTIFY wakes
    cognition.runner                   the mind that holds its lease reads what it has not observed
    cognition.state                    observe: topics, habits and what waits become a snapshot
    cognition.processes                propose candidates
    cognition.attention                gates, scores, threshold, the best K
    cognition.record                   the cycle as events, one commit with the state's checkpoint
    cognition.executive                does what an admitted thought wants done: speak
    events.feed, web.pages.tail        those who watch see it
    replay.verify                      rebuilds all of it from the log, and compares

`app` puts the parts together; `cli.serving` runs them.
"""

from importlib.metadata import version

__version__ = version("noema")
