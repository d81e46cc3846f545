"""How far two cores are from each other: the round trip of a cache line between them.

    python benchmarks/cores.py [--cores 0,1] [--times 5]

Kernels whose cores hand data to each other depend on it, and on a virtual machine it changes when
the host moves a core: a noisy machine may be one whose cores do not share a cache for a while.
Needs Linux and a C compiler.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TURNS = 100000 };
static _Alignas(128) atomic_int turn;

static void stay_on(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set)) exit(1);
}

static void wait_for(int value) {
    while (atomic_load_explicit(&turn, memory_order_acquire) != value) {}
}

static void *answer(void *core) {
    stay_on(*(int *)core);
    for (int i = 0; i < TURNS; i++) {
        wait_for(2 * i + 1);
        atomic_store_explicit(&turn, 2 * i + 2, memory_order_release);
    }
    return 0;
}

int main(int count, char **words) {
    int first = atoi(words[1]), second = atoi(words[2]);
    pthread_t other;
    struct timespec from, to;
    stay_on(first);
    if (pthread_create(&other, 0, answer, &second)) return 1;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < TURNS; i++) {
        atomic_store_explicit(&turn, 2 * i + 1, memory_order_release);
        wait_for(2 * i + 2);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    double ns = (to.tv_sec - from.tv_sec) * 1e9 + to.tv_nsec - from.tv_nsec;
    printf("%.0f\n", ns / TURNS);
    return 0;
}
"""


def main() -> None:
    """Compile the program, run it some times, print each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--times", type=int, default=5, help="measurements, a second apart")
    args = parser.parse_args()
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        raise SystemExit("needs Linux and a C compiler (cc, gcc or clang)")
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "cores.c", Path(folder) / "cores"
        source.write_text(SOURCE, encoding="utf-8")
        subprocess.run([compiler, "-O2", "-pthread", source, "-o", program], check=True)
        print(f"round trip of a cache line between cores {args.cores}")
        for number in range(args.times):
            time.sleep(min(number, 1))
            command = [str(program), *args.cores.split(",")]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"{time.strftime('%H:%M:%S')} {done.stdout.strip()} ns", flush=True)


if __name__ == "__main__":
    main()
