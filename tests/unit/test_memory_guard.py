"""The guard looks seldom, warns next to a cap, and remembers the most it saw."""

from vlmcli.memory.guard import INTERVAL, MemoryGuard, Watched


class Machine:
    def __init__(self) -> None:
        self.now = 0.0
        self.taken = 0
        self.looks = 0

    def read(self) -> int:
        self.looks += 1
        return self.taken

    def guard(self, cap: int | None = 1000) -> MemoryGuard:
        watched = Watched(name="memory", cap_bytes=cap, read=self.read)
        return MemoryGuard(watched, clock=lambda: self.now)


def test_it_looks_twice_a_second_at_the_most() -> None:
    machine = Machine()
    guard = machine.guard()
    for step in range(1000):
        machine.now = step * INTERVAL / 100
        guard.look()
    assert machine.looks == 10


def test_pressure_begins_next_to_the_cap_and_calm_takes_time() -> None:
    machine = Machine()
    guard = machine.guard()

    def look(taken: int) -> str:
        machine.now += INTERVAL
        machine.taken = taken
        return guard.look()

    assert look(970) == "none"
    assert look(985) == "tight" == look(1100)
    answers = [look(100) for _ in range(19)]
    assert answers == ["none"] * 19
    # What is neither tight nor easy starts the count anew.
    assert look(950) == "none"
    assert [look(100) for _ in range(20)] == ["none"] * 19 + ["calm"]


def test_the_most_that_was_seen_is_in_the_figures() -> None:
    machine = Machine()
    guard = machine.guard()
    for machine.taken in (5, 700, 30):
        guard.measure()
    assert guard.stats() == {"memory_cap_bytes": 1000, "memory_peak_bytes": 700}


def test_what_has_no_cap_is_not_looked_at() -> None:
    machine = Machine()
    machine.taken = 10**12
    guard = machine.guard(cap=None)
    assert guard.look() == "none"
    assert not guard.is_tight
    assert guard.stats() == {} and machine.looks == 0
