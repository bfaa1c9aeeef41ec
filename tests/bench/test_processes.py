"""CPU by process."""

import os
import threading
import time

from bench.processes import cpu_seconds


def test_the_cpu_of_a_process_is_that_of_all_its_threads() -> None:
    worked, end = threading.Event(), threading.Event()

    def work() -> None:
        while time.thread_time() < 0.2:
            sum(range(1000))
        worked.set()
        end.wait()  # what has ended is not counted

    began = cpu_seconds(os.getpid())
    thread = threading.Thread(target=work)
    thread.start()
    worked.wait()
    used = cpu_seconds(os.getpid()) - began
    end.set()
    thread.join()
    assert used >= 0.15
