"""A flood is one topic; different messages are different topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noema.cognition.processes import reflection
from noema.cognition.severity import PLAIN, intensity
from noema.cognition.topic import MAX_KEY, topic_key
from tests.helpers import not_for_ever

FLOODS = {
    "ssh": "Mar {m} 04:0{d}:11 gate sshd[{n}]: Failed password for root from 10.{d}.7.{m} port {n}",
    "invalid": "Mar  2 04:01:11 gate sshd[{n}]: Invalid user {word} from 10.0.0.{m}",
    "pam": "Mar  2 04:01:11 gate su(pam_unix)[{n}]: failure; uid={d} ruser= rhost={word}.a.com",
    "hdfs": "081{m} 2036{m} {n} INFO dfs.Node$Responder: Responder {d} for block blk_-{n} done",
    "bgl": "- 11178{n} 2005.06.{m} R0{d}-M1 2005-06-{m}-15.42.50.3 R0{d}-M1 RAS APP INFO parity ok",
    "health": "201712{m}-2:1{d}:29:60{d}|Step_LSC|300{n}|onStepChanged {n}",
    "spark": "17/06/{m} 20:10:4{d} INFO storage.Manager: Found block rdd_{d}_{n} locally",
    "windows": "2016-09-28 04:30:{m}, Info    CBS    Stack v{d}.1.{n} in C:\\Win\\{word}.dll",
    "apache": "[Sun Dec {m} 04:47:4{d} 2005] [error] [client 1.2.{d}.{m}] cannot stat /srv/{word}",
    "proxy": "[10.{m} 16:49:0{d}] app.exe - {word}.proxy.org:{n} close, {n} bytes, life 0{d}:11",
    "access": '10.0.0.{d} - - [{m}/Oct/2000:13:55:36 -0700] "GET /{word}/{n} HTTP/1.0" 200 {n}',
    "stack": 'api.log.{d} 2017-05-16 00:00:0{d}.008 {n} I w [r-{n}ab - -] "GET /v2/{n}" len: {n}',
    "android": "03-{m} 16:13:38.8{m}  {n}  23{m} D Power: release lock={n}, uid=10{m}, ws=null",
    "mac": "Jul  {d} 09:00:{m} host-10-{d} kernel[0]: Thunder<{d}>(0x{d})::notify - port = {m}",
    "phone": "用户{n}登录失败 来自10.0.{d}.{m}",
    "iso": "2024-03-{m}T01:02:03.{n}Z worker-{d} job {n} took {d}.{m}s on https://{word}.io/x/{n}",
}
WORDS = ("ann", "bob", "oracle", "web-master", "x.y")


@pytest.mark.parametrize("shape", FLOODS.values(), ids=FLOODS.keys())
def test_a_flood_of_one_shape_is_one_topic(shape: str) -> None:
    lines = {
        shape.format(n=10_000 + 7_919 * i, m=10 + i % 18, d=i % 10, word=WORDS[i % len(WORDS)])
        for i in range(40)
    }

    assert len(lines) > 15
    assert len({topic_key(line) for line in lines}) == 1


def test_the_floods_are_different_topics() -> None:
    keys = {topic_key(f.format(n=12345, m=11, d=1, word="ann")) for f in FLOODS.values()}

    assert len(keys) == len(FLOODS)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("kernel: hub driver registered", "kernel: usbfs driver registered"),
        ("Too many failures for root", "Too many failures for admin"),
        ("a[1]: session opened for user ann by (uid=0)", "a[1]: session closed for user ann"),
        ("Brcm43xx::suspend: done", "Brcm43xx::resume: done"),
        ("login; rhost=", "login; rhost=1.2.3.4"),
        ("state: LOOKING, round 3", "state: LEADING, round 3"),
        ('1.1.1.1 - - [1/x] "GET /a HTTP/1.1" 200 1', '1.1.1.1 - - [1/x] "GET /a HTTP/1.1" 503 1'),
        ("用户1登录失败", "用户1登录成功"),
        ("disk 3 🔥", "disk 3 🙂"),
        ('{"level":"error","msg":"disk full"}', '{"level":"error","msg":"disk gone"}'),
        ("word " * 50 + "yes", "word " * 50 + "no"),
    ],
)
def test_different_messages_are_different_topics(one: str, other: str) -> None:
    assert topic_key(one) != topic_key(other)


@pytest.mark.parametrize(
    "time_",
    [
        "Jun 14 15:16:01 ",
        "Jun  4 15:16:01 ",
        "2015-07-29 17:41:44,747 - ",
        "2015-07-29T17:41:44.747Z ",
        "[Sun Dec 04 04:47:44 2005] ",
        "[1700000000.5] ",
        "17/06/09 20:10:40 ",
        "20171223-22:15:29:606|",
        "<34>1 2003-10-11T22:14:15.003Z ",
    ],
)
def test_the_topic_is_the_same_with_the_time_cut_off(time_: str) -> None:
    line = "gate sshd[193]: [preauth] closed by 10.0.0.1"

    assert topic_key(time_ + line) == topic_key(line)


@given(st.text(alphabet=st.characters(), max_size=400) | st.text(alphabet="a1 *[](),:=/.'\"|-@\n"))
def test_any_text_has_a_bounded_key_without_digits_left(text: str) -> None:
    key = topic_key(text)

    assert 0 < len(key) <= MAX_KEY
    assert topic_key(text) == key
    if "~" not in key:
        assert not any(c in "0123456789" for c in key)


def test_control_characters_and_lone_surrogates_are_kept() -> None:
    assert topic_key("bad \x00 byte \ud800 here") == "bad \x00 byte \ud800 here"
    assert len(topic_key("bad \ud800 " * 100)) == MAX_KEY


@pytest.mark.parametrize(
    "unit", ["a", "1", "a.", "ab/", "* ", "user ", "[ ", "a@", "::", "x.com.", "'"]
)
def test_a_long_line_costs_no_more_than_its_examined_part(unit: str) -> None:
    line = unit * (4_194_304 // len(unit))

    with not_for_ever():
        assert len(topic_key(line)) <= MAX_KEY


def test_trouble_is_louder_than_routine() -> None:
    assert intensity("kernel panic: not syncing") == 1_000_000
    assert intensity("java.io.IOException: broken pipe") == 700_000
    assert intensity("WARN queue is long") == 450_000
    assert intensity("all is well") == PLAIN
    assert intensity("finished with no errors") == PLAIN
    assert intensity("finished with 0 errors") == PLAIN
    assert intensity("finished with 10 errors") == 700_000
    assert intensity("   ") == 0


@given(st.text(max_size=200))
def test_intensity_is_a_micro_unit(text: str) -> None:
    assert 0 <= intensity(text) <= 1_000_000


def test_no_line_can_pass_for_the_minds_own_reflection() -> None:
    for line in (reflection.TOPIC, f"{reflection.TOPIC} ", reflection.TOPIC.strip("/"), "/self"):
        assert topic_key(line) != reflection.TOPIC
