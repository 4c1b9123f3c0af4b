"""The lock of an object store: one owner, renewed, and taken over from one that is dead."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from jaxsens.core import lease
from jaxsens.core.bucket import Bucket
from jaxsens.core.files import WorkdirError
from jaxsens.core.lease import Lease

KEY = "run/.lock"


@pytest.fixture
def short(monkeypatch):
    """Leases of half a second."""
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.1)


def take(told=None):
    return Lease(
        Bucket("bucket"), KEY, "gs://bucket/run", [].append if told is None else told.append
    )


def elsewhere(**fields):
    """The lock of a process of another machine."""
    process = {"boot": "another", "numbered_in": "pid:[1]", "number": 1, "started": "1"}
    return json.dumps({"owner": "process 1 on far", "process": process, **fields}).encode()


def until(condition, seconds=20):
    """Waits for another thread."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_it_says_whose_it_is_and_goes_with_its_owner(server):
    held = take()
    assert held.lost() is None
    owner = json.loads(server.objects[KEY][0])["owner"]
    assert owner.startswith(f"process {os.getpid()} on ")
    with pytest.raises(WorkdirError, match=f"gs://bucket/run is in use by {owner}; wait"):
        take()
    held.release()
    assert KEY not in server.objects
    take().release()


def test_of_many_at_once_one_gets_it(server):
    won, refused = [], []

    def attempt():
        try:
            won.append(take())
        except WorkdirError:
            refused.append(True)

    threads = [threading.Thread(target=attempt) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(refused)) == (1, 5)
    won[0].release()


def test_of_a_process_that_has_ended_here_it_is_taken_over_at_once(server):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        process = lease._process(other.pid)
    server.objects[KEY] = (json.dumps({"owner": "it", "process": process}).encode(), 7)
    told = []
    take(told).release()
    assert not told
    # The same number, of a process that lives but began at another time.
    process |= {"number": os.getpid(), "started": "1"}
    server.objects[KEY] = (json.dumps({"owner": "it", "process": process}).encode(), 8)
    take(told).release()
    assert not told


@pytest.mark.parametrize("content", [elsewhere(), b"", b"[]", b'{"process": 3}', b"\xff"])
def test_what_nobody_renews_is_taken_over_after_the_lease(server, short, content):
    server.objects[KEY] = (content, 7)
    told = []
    held = take(told)
    assert "its lock is taken over in" in told[0]
    assert held.lost() is None
    held.release()
    assert KEY not in server.objects


def test_what_is_renewed_meanwhile_is_in_use(server, short):
    server.objects[KEY] = (elsewhere(renewed=0), 7)

    def renew(_):
        server.objects[KEY] = (elsewhere(renewed=1), 8)

    with pytest.raises(WorkdirError, match="in use by process 1 on far"):
        Lease(Bucket("bucket"), KEY, "gs://bucket/run", renew)
    assert server.objects[KEY][1] == 8


def test_who_comes_second_to_a_dead_owner_s_lock_does_not_get_it(server, short, monkeypatch):
    server.objects[KEY] = (elsewhere(), 7)
    found = lease._generation_to_replace

    def then_another_takes_it(*args):
        generation = found(*args)
        server.objects[KEY] = (elsewhere(token="another"), 8)
        return generation

    monkeypatch.setattr(lease, "_generation_to_replace", then_another_takes_it)
    with pytest.raises(WorkdirError, match="in use by another process, which was first"):
        take()
    assert server.objects[KEY][1] == 8


def test_its_owner_renews_it(server, short):
    held = take()
    first = server.objects[KEY][1]
    until(lambda: server.objects[KEY][1] > first + 2)
    assert held.lost() is None
    held.release()


def test_an_owner_that_was_stopped_for_long_renews_before_it_goes_on(server, monkeypatch):
    held = take()
    first = server.objects[KEY][1]
    held._renewed -= 1000
    assert held.lost() is None
    assert server.objects[KEY][1] > first
    held._renewed -= 1000
    server.change(KEY, elsewhere(), None)
    assert "taken over" in held.lost()
    held.release()


def test_a_renewal_whose_answer_was_lost_is_its_own(server):
    held = take()
    server.lose_answers = 1
    held._renew()
    held._renew()
    assert held.lost() is None
    assert server.objects[KEY][1] == held._generation
    held.release()
    assert KEY not in server.objects


@pytest.mark.parametrize("becomes", [elsewhere(token="another"), None])
def test_an_owner_notices_that_it_is_not_its_own_any_more(server, short, becomes):
    held = take()
    if becomes is None:
        server.change(KEY, None, None)
    else:
        server.change(KEY, becomes, None)
    until(lambda: held.lost() is not None)
    assert "taken over by another process" in held.lost()
    held.release()
    assert server.objects.get(KEY, (None,))[0] == becomes


def test_an_owner_that_cannot_renew_stops_before_another_may_begin(server, short):
    held = take()
    server.fail_from = 0
    until(lambda: held.lost() is not None)
    assert "could not be reached" in held.lost()
    held.release()
