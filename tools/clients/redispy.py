"""A client of redis-py in cluster mode, under the control of tools/chaos, which starts it in front of a cluster:

    python3 redispy.py PHASE HOST:PORT...

It says "ready" when all its keys are there, works until its standard input ends, and then prints one line of JSON: how many
operations were done, which errors reached the caller and how often, and what was read that was not written. In the phase
failovers what was read is not judged: the last writes before a failover may be lost. This version of redis-py has no
transactions in cluster mode, so there are pipelines alone.
"""

import json
import random
import sys
import threading
from collections import Counter

from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisError

PHASE = sys.argv[1]
NODES = [ClusterNode(*a.rsplit(":", 1)) for a in sys.argv[2:]]
THREADS, KEYS = 4, 250

errors, wrong, ops = Counter(), [], Counter()
stop = threading.Event()
ready = threading.Barrier(THREADS + 1)


class Worker:
    def __init__(self, number):
        self.db = RedisCluster(startup_nodes=NODES)
        self.rng = random.Random(number)
        self.number = number
        self.texts, self.counts, self.doubtful = {}, {}, set()

    def key(self, kind, i):
        return f"py-{PHASE}-{kind}-{self.number}-{i}"

    def fill(self):
        for i in range(KEYS):
            self.db.set(self.key("s", i), "0")
            self.db.hset(self.key("h", i), "f", "0")
            self.db.set(self.key("n", i), 0)
            self.texts[i], self.counts[i] = "0", 0

    def read(self, i):
        text, field, count = self.db.get(self.key("s", i)), self.db.hget(self.key("h", i), "f"), self.db.get(self.key("n", i))
        if PHASE == "failovers" or i in self.doubtful:
            return
        want = (self.texts[i].encode(), self.texts[i].encode(), str(self.counts[i]).encode())
        if (text, field, count) != want:
            wrong.append(f"key {i} of {self.number}: {text}, {field}, {count}, want {want}")

    def write(self, i):
        self.texts[i] = str(self.rng.random())
        self.db.set(self.key("s", i), self.texts[i])
        self.db.hset(self.key("h", i), "f", self.texts[i])

    def count(self, i):
        self.counts[i] += 1
        self.db.incr(self.key("n", i))

    def pipeline(self, i):
        with self.db.pipeline() as pipe:
            for j in range(10):
                k = (i + j) % KEYS
                self.texts[k] = str(self.rng.random())
                pipe.set(self.key("s", k), self.texts[k])
                pipe.hset(self.key("h", k), "f", self.texts[k])
            pipe.execute()

    def run(self):
        self.fill()
        ready.wait()
        while not stop.is_set():
            i, do = self.rng.randrange(KEYS), self.rng.choice([self.read, self.write, self.count, self.pipeline])
            try:
                do(i)
            except (RedisError, OSError) as e:
                errors[f"{type(e).__name__}: {e}"] += 1
                # Whether it was done is not known.
                self.doubtful.update((i + j) % KEYS for j in range(10 if do == self.pipeline else 1))
            ops[self.number] += 1


def main():
    threads = [threading.Thread(target=Worker(n).run) for n in range(THREADS)]
    for t in threads:
        t.start()
    ready.wait()
    print("ready", flush=True)
    sys.stdin.read()
    stop.set()
    for t in threads:
        t.join()
    print(json.dumps({"ops": sum(ops.values()), "errors": errors, "wrong": wrong[:20]}), flush=True)


main()
