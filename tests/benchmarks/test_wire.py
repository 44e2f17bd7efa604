from benchmarks.wire.__main__ import rows_of

ENDLESS = [
    "-n",
    "1",
    "-r",
    "1",
    "-s",
    'print(\'{"variant": "first"}\', flush=True)',
    "while True: pass",
]


def test_a_coordinator_that_hangs_is_ended_and_what_it_said_before_is_kept() -> None:
    first, second = rows_of("timeit", ("first", "second"), ENDLESS, deadline_seconds=2.0)
    assert first == {"variant": "first"}
    assert second == {"variant": "second", "problem": "not done after 2 s"}


def test_a_coordinator_that_fails_says_why() -> None:
    (found,) = rows_of(
        "timeit", ("ours",), ["-n", "1", "raise RuntimeError('no such cluster')"], 60.0
    )
    assert found == {"variant": "ours", "problem": "RuntimeError: no such cluster"}
