import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.cli import importing
from noema.cli.importing import Entry, JsonLines, Mark, TextFiles
from noema.cli.output import CommandError
from noema.cli.pieces import Piece, markdown_pieces, plain_pieces

START = Mark()


def json_lines(raw: bytes, **defaults: Any) -> JsonLines:
    return JsonLines(io.BytesIO(raw), name="f.jsonl", path=None, defaults=defaults)


def entries(raw: bytes, **defaults: Any) -> list[Entry]:
    return list(json_lines(raw, **defaults).entries(START))


def folder(root: Path, limit: int = 2000, **more: Any) -> TextFiles:
    options: dict[str, Any] = {"extensions": importing.EXTENSIONS, "defaults": {}, **more}
    return TextFiles(root, limit=limit, **options)


def write(root: Path, name: str, content: str | bytes) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


# -- JSON lines


def test_a_line_that_is_nested_too_deeply_is_told_so_and_the_rest_goes_on() -> None:
    deep, fine = entries(b'{"text": "x", "content": ' + b"[" * 200_000 + b'}\n"fine"\n')

    assert (deep.problem, fine.body) == ("is not JSON (nested too deeply)", {"text": "fine"})


def test_a_line_is_a_body_or_a_bare_string() -> None:
    found = entries(b'{"text": "a", "kind": "fact"}\n"b"\n{"messages": []}\n')

    assert [one.body for one in found] == [
        {"text": "a", "kind": "fact"},
        {"text": "b"},
        {"messages": []},
    ]
    assert [one.place for one in found] == ["f.jsonl:1", "f.jsonl:2", "f.jsonl:3"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "is not JSON"),
        (b'{"text": NaN}', "NaN is not a number"),
        (b"[" * 100_000, "is not JSON"),
        (b"17", "neither an object nor a string"),
        (b'["a"]', "neither an object nor a string"),
        (b'{"txt": "a"}', 'neither a "text" and "messages"'),
        (b'{"text": "a", "messages": []}', 'both a "text" and "messages"'),
        (b'"caf\xe9"', "is not UTF-8 (byte 0xe9 at 4)"),
    ],
)
def test_a_malformed_line_says_where_and_why_and_the_rest_goes_on(line: bytes, why: str) -> None:
    found = entries(b'"a"\n' + line + b'\n"b"')

    assert [one.body for one in found] == [{"text": "a"}, None, {"text": "b"}]
    assert found[1].place == "f.jsonl:2"
    assert why in str(found[1].problem)


def test_a_line_that_is_too_long_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "MAX_LINE_BYTES", 1024 * 1024)
    raw = b'"a"\n"' + b"x" * 3_000_000 + b'"\n"b"\n'

    found = entries(raw)

    assert found[1].problem == "is longer than 1 MiB"
    assert found[2].body == {"text": "b"}
    assert found[2].mark == Mark(items=3, units=3, offset=len(raw))


def test_empty_lines_are_counted_and_a_byte_order_mark_is_no_text() -> None:
    source = json_lines(b'\xef\xbb\xbf"a"\r\n\n  \n"b"\n')

    found = list(source.entries(START))

    assert [one.body for one in found] == [{"text": "a"}, {"text": "b"}]
    assert [one.place for one in found] == ["f.jsonl:1", "f.jsonl:4"]
    assert source.passed.empty == 2


def test_defaults_stand_in_for_what_a_line_leaves_out_and_nothing_is_asynchronous() -> None:
    found = entries(b'{"text": "a", "source": "s", "async": true}\n"b"\n', source="f", kind="fact")

    assert [one.body for one in found] == [
        {"text": "a", "source": "s", "kind": "fact"},
        {"text": "b", "source": "f", "kind": "fact"},
    ]


def test_what_depends_on_what_came_before_shares_a_lane() -> None:
    bodies = [
        {"messages": [], "conversation": "c"},
        {"text": "x", "conversation": "c"},
        {"text": "x", "supersedes": "m"},
        {"text": "x", "refresh": True, "source": "s"},
        {"text": "x", "source": "s"},
    ]

    found = entries(b"\n".join(json.dumps(body).encode() for body in bodies))

    lanes = ["conversation c", "conversation c", "memory m", "source s", None]
    assert [one.lane for one in found] == lanes


@given(
    st.lists(st.sampled_from([b'"a"', b"", b"{", b'{"text": "b"}', b"\xff"]), max_size=12),
    st.integers(0, 12),
)
def test_going_on_behind_any_mark_gives_exactly_the_rest(lines: list[bytes], taken: int) -> None:
    raw = b"\n".join(lines)
    whole = entries(raw)
    mark = whole[taken - 1].mark if 0 < taken <= len(whole) else START

    rest = list(json_lines(raw).entries(mark))

    assert rest == whole[mark.items :]


# -- folders


def test_a_folder_is_read_in_one_order_without_what_is_hidden_linked_or_called_otherwise(
    tmp_path: Path,
) -> None:
    root = tmp_path / "docs"
    for name in ("b.md", "a/z.txt", "a/b/c.MD", ".hidden.md", ".git/x.md", "d.py", "é.txt"):
        write(root, name, f"In {name}.")
    write(tmp_path, "outside.md", "secret")
    (root / "link.md").symlink_to(tmp_path / "outside.md")
    (root / "loop").symlink_to(root)
    source = folder(root)

    found = list(source.entries(START))

    assert [one.place for one in found] == ["a/b/c.MD", "a/z.txt", "b.md", "é.txt"]
    assert found[0].body == {"text": "In a/b/c.MD.", "source": "a/b/c.MD"}
    assert source.passed.links == 2
    assert [one.mark.items for one in found] == [1, 2, 3, 4]


def test_the_source_of_a_piece_is_its_file_and_heading(tmp_path: Path) -> None:
    write(tmp_path, "guide/a.md", "Before.\n\n# Set  up\n\nDo *this*.\n\n## Then\n\nThat.\n")

    found = list(folder(tmp_path, prefix="wiki/", defaults={"kind": "semantic"}).entries(START))

    assert [one.body for one in found] == [
        {"text": "Before.", "source": "wiki/guide/a.md", "kind": "semantic"},
        {
            "text": "# Set  up\n\nDo *this*.",
            "source": "wiki/guide/a.md#Set up",
            "kind": "semantic",
        },
        {"text": "## Then\n\nThat.", "source": "wiki/guide/a.md#Then", "kind": "semantic"},
    ]


def test_a_file_that_cannot_be_used_is_reported_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "MAX_FILE_BYTES", 1024 * 1024)
    write(tmp_path, "a.txt", b"caf\xe9")
    write(tmp_path, "b.txt", "x" * (1024 * 1024 + 1))
    write(tmp_path, "c.txt", " \n\n")
    write(tmp_path, "d.txt", "fine")
    source = folder(tmp_path)

    found = list(source.entries(START))

    assert [(one.place, one.problem) for one in found] == [
        ("a.txt", "is not UTF-8 (byte 0xe9 at 3)"),
        ("b.txt", "is larger than 1 MiB; split it"),
        ("d.txt", None),
    ]
    assert source.passed.empty == 1


def test_a_file_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "docs"
    write(root, "a.txt", "one")
    write(root, "b.txt", "two")
    write(tmp_path, "secret.txt", "secret")
    running = folder(root).entries(START)
    first = next(running)

    (root / "b.txt").unlink()
    (root / "b.txt").symlink_to(tmp_path / "secret.txt")
    rest = list(running)

    assert first.body == {"text": "one", "source": "a.txt"}
    assert [one.body for one in rest] == [None]
    assert "cannot be read" in str(rest[0].problem)


def test_a_name_that_is_not_utf8_is_shown_with_its_bytes(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("x")

    found = list(folder(tmp_path).entries(START))

    assert found[0].body == {"text": "x", "source": "caf\\xe9.txt"}


def test_going_on_in_the_middle_of_a_file_gives_exactly_the_rest(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "# A\n\none\n\n# B\n\ntwo\n")
    write(tmp_path, "b.txt", b"\xff")
    write(tmp_path, "c.txt", "\n\n".join("paragraph " + str(n) * 90 for n in range(9)))
    whole = list(folder(tmp_path, limit=100).entries(START))

    rests = [list(folder(tmp_path, limit=100).entries(one.mark)) for one in whole]

    assert len(whole) > 10
    assert rests == [whole[number + 1 :] for number in range(len(whole))]


def test_a_folder_that_changes_is_another_source(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "one")
    before = folder(tmp_path).identity
    unchanged = folder(tmp_path).identity

    write(tmp_path, "b.md", "two")

    assert unchanged == before
    assert folder(tmp_path).identity != before


def test_a_folder_with_nothing_to_read_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"ends in \.md, \.markdown, \.txt, \.text"):
        folder(tmp_path)


# -- pieces


def test_a_heading_without_text_goes_with_the_deeper_one_below_it() -> None:
    found = list(markdown_pieces("# A\n## B\n\ntext\n\n# C\n# D\n", 2000))

    assert found == [
        Piece(heading="B", text="# A\n\n## B\n\ntext"),
        Piece(heading="C", text="# C"),
        Piece(heading="D", text="# D"),
    ]


def test_what_looks_like_a_heading_in_code_or_front_matter_is_none() -> None:
    text = "---\ntitle: x\n---\n\n```sh\n# no heading\n```\n\nReal\n----\n\n> # quoted\n"

    found = list(markdown_pieces(text, 2000))

    assert found == [
        Piece(heading="", text="---\ntitle: x\n---\n\n```sh\n# no heading\n```"),
        Piece(heading="Real", text="Real\n----\n\n> # quoted"),
    ]


def test_a_long_section_comes_in_pieces_that_each_have_its_heading() -> None:
    paragraphs = [f"Paragraph {n} " + "word " * 20 for n in range(10)]

    found = list(markdown_pieces("# Long\n\n" + "\n\n".join(paragraphs), 300))

    assert len(found) > 3
    assert all(piece.text.startswith("# Long\n\nParagraph") for piece in found)
    assert all(len(piece.text) <= 300 for piece in found)


def test_a_paragraph_that_is_too_long_is_cut_behind_a_sentence_else_a_word() -> None:
    sentences = list(plain_pieces("One two three. Four five six. Seven eight nine.", 32))
    words = list(plain_pieces("alpha beta gamma delta", 12))

    assert [piece.text for piece in sentences] == [
        "One two three. Four five six.",
        "Seven eight nine.",
    ]
    assert [piece.text for piece in words] == ["alpha beta", "gamma delta"]


def test_a_letter_and_its_accent_stay_together() -> None:
    found = list(plain_pieces("e\u0301" * 40, 11))

    assert "".join(piece.text for piece in found) == "e\u0301" * 40
    assert all(piece.text.startswith("e") for piece in found)


_LINES = st.sampled_from(
    ["# A", "## B", "### C c", "text", "a longer line of text. With two sentences.", "", "", "```",
     "- item", "  more", "> quote", "---", "===", "| a | b |", "[a]: http://x", "    code",
     "日本語。", "<div>", "word " * 40, "x" * 150]
)  # fmt: skip


@given(st.lists(_LINES, max_size=30), st.integers(100, 400))
def test_every_piece_fits_and_no_word_is_lost_or_moved(lines: list[str], limit: int) -> None:
    text = "\n".join(lines)

    for cut in (markdown_pieces, plain_pieces):
        pieces = list(cut(text, limit))

        assert all(0 < len(piece.text) <= limit for piece in pieces)
        joined = iter("".join("".join(piece.text for piece in pieces).split()))
        # In order; a heading may come again at the start of a further piece.
        assert all(char in joined for char in "".join(text.split()))
