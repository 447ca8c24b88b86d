"""The process in which Presidio runs: a question a line on standard input, an answer a line.

python -m noema.memory.presidio_worker
"""

import sys
from importlib import import_module
from typing import Any, BinaryIO, Final

import msgspec

from noema.memory.presidio import Answer, Question, Ready

_SURE: Final = 0.4


def serve(engine: Any, questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer every line until there are no more. `engine` is Presidio's `AnalyzerEngine`."""
    answers.write(msgspec.json.encode(Ready(ready=True)) + b"\n")
    answers.flush()
    for line in questions:
        question = msgspec.json.decode(line, type=Question)
        kinds = [
            sorted(
                {
                    found.entity_type
                    for found in engine.analyze(
                        text=text, language=question.language, score_threshold=_SURE
                    )
                }
            )
            for text in question.texts
        ]
        answers.write(msgspec.json.encode(Answer(kinds=kinds)) + b"\n")
        answers.flush()


if __name__ == "__main__":
    serve(import_module("presidio_analyzer").AnalyzerEngine(), sys.stdin.buffer, sys.stdout.buffer)
