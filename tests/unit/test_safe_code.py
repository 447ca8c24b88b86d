"""What must never stand in the code, whoever writes it: docs/security.md names these tests."""

import ast
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from noema.cli.serving import configure_logging
from noema.config import Settings
from noema.web.routes import ROUTES

ROOT = Path(__file__).resolve().parents[2]
_RUNS_CODE = {"eval", "exec", "compile", "__import__"}
_RUNS_MODULES = {"pickle", "marshal", "shelve", "dill", "yaml", "xml", "telnetlib"}
_STATEMENT = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|ALTER|CREATE|DROP)\b")
# Names of tables and functions of the catalog, and the number of a setting: not from outside.
_MIGRATIONS_AND_SETUP = ("noema/db/",)


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "noema").rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_nothing_from_outside_is_run_as_code() -> None:
    found = [
        f"{path}: {name}" for path, tree in modules() for name, _ in calls(tree)
        if name in _RUNS_CODE
    ]  # fmt: skip
    for path, tree in modules():
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{path}: {n}" for n in names if n.partition(".")[0] in _RUNS_MODULES]

    assert found == []


def test_programs_are_started_without_a_shell() -> None:
    found = [
        f"{path}: {name}" for path, tree in modules() for name, call in calls(tree)
        if name in ("os.system", "os.popen", "asyncio.create_subprocess_shell")
        or (name.startswith("subprocess.") and any(k.arg == "shell" for k in call.keywords))
    ]  # fmt: skip

    assert found == []


def test_sql_is_never_put_together_from_values() -> None:
    found = []
    for path, tree in modules():
        if path.startswith(_MIGRATIONS_AND_SETUP):
            continue
        for node in ast.walk(tree):
            text = ""
            if isinstance(node, ast.JoinedStr):
                fixed = [v.value for v in node.values if isinstance(v, ast.Constant)]
                text = " ".join(map(str, fixed)) if len(fixed) < len(node.values) else ""
            elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
                sides = (node.left, node.right)
                text = " ".join(
                    s.value
                    for s in sides
                    if isinstance(s, ast.Constant) and isinstance(s.value, str)
                )
            if _STATEMENT.search(text):
                found.append(f"{path}:{getattr(node, 'lineno', 0)}")

    assert found == []


def test_no_weak_hash_function_is_used() -> None:
    weak = re.compile(r"\b(md5|sha1|ECB|DES|RC4)\b", re.IGNORECASE)
    found = [
        f"{path}: {name}" for path, tree in modules() for name, _ in calls(tree)
        if weak.search(name)
    ]  # fmt: skip

    assert found == []


def test_no_get_route_changes_anything() -> None:
    assert [r.path for r in ROUTES if r.method == "GET" and r.need == "write"] == []
    assert {r.method for r in ROUTES} <= {"GET", "POST", "PATCH", "PUT", "DELETE"}


def test_the_script_keeps_to_the_safe_side() -> None:
    script = (ROOT / "static/noema.js").read_text(encoding="utf-8")
    templates = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "templates").rglob("*.html"))

    assert not re.search(r"\beval\(|new Function|document\.write|outerHTML\s*=|__proto__", script)
    # One place makes markup, of what our own server rendered, in a template that runs nothing.
    assert script.count("innerHTML") == 1
    assert set(re.findall(r"(?:local|session)Storage\.\w+\('([^']+)'", script)) == {"noema-keys"}
    assert not re.search(r"<(object|embed|applet)\b|https?://(?!www\.w3\.org)", templates)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_logged_value_stays_on_its_line(log_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    configure_logging(
        Settings(
            data_dir=Path("/nonexistent"), log_format="json" if log_format == "json" else "text"
        )
    )
    try:
        structlog.get_logger().warning("seen", value="one\n2027-01-01 two")
    finally:
        structlog.reset_defaults()

    assert written.getvalue().count("\n") == 1


def test_passwords_are_typed_unseen_and_managers_may_fill_them_in() -> None:
    fields = [
        field
        for path in sorted((ROOT / "templates").rglob("*.html"))
        for field in re.findall(r"<input\b[^>]*>", path.read_text(encoding="utf-8"))
        if re.search(r'name="(password|old|new|again)"', field)
    ]
    script = (ROOT / "static/noema.js").read_text(encoding="utf-8")

    assert fields
    for field in fields:
        assert 'type="password"' in field
        assert re.search(r'autocomplete="(current|new)-password"', field)
        assert "maxlength" not in field
    assert not re.search(r"""['"]paste['"]|onpaste""", script)
