// A client of ioredis in cluster mode, under the control of tools/chaos, which starts it in front of a cluster:
//
//   node ioredis.js PHASE HOST:PORT...
//
// It says "ready" when all its keys are there, works until its standard input ends, and then prints one line of JSON: how many
// operations were done, which errors reached the caller and how often, and what was read that was not written. In the phase
// failovers what was read is not judged: the last writes before a failover may be lost.

"use strict";

const { Cluster } = require("ioredis");

const [phase, ...addrs] = process.argv.slice(2);
const workers = 4;
const keys = 250;

const errors = {};
const wrong = [];
let ops = 0;
let stopped = false;

const db = new Cluster(
  addrs.map((a) => {
    const at = a.lastIndexOf(":");
    return { host: a.slice(0, at), port: Number(a.slice(at + 1)) };
  }),
);
db.on("error", () => {}); // what reaches the caller is counted where it is called

class Worker {
  constructor(number) {
    this.number = number;
    this.texts = [];
    this.counts = [];
    this.doubtful = new Set();
  }

  // Keys of one number are in one slot, for transactions.
  key(kind, i) {
    return `{js-${phase}-${this.number}-${i}}${kind}`;
  }

  async fill() {
    for (let i = 0; i < keys; i++) {
      await db.set(this.key("s", i), "0");
      await db.hset(this.key("h", i), "f", "0");
      await db.set(this.key("n", i), 0);
      this.texts[i] = "0";
      this.counts[i] = 0;
    }
  }

  async read(i) {
    const got = [await db.get(this.key("s", i)), await db.hget(this.key("h", i), "f"), await db.get(this.key("n", i))];
    const want = [this.texts[i], this.texts[i], String(this.counts[i])];
    if (phase !== "failovers" && !this.doubtful.has(i) && String(got) !== String(want)) {
      wrong.push(`key ${i} of ${this.number}: ${got}, want ${want}`);
    }
  }

  async write(i) {
    this.texts[i] = String(Math.random());
    await db.set(this.key("s", i), this.texts[i]);
    await db.hset(this.key("h", i), "f", this.texts[i]);
  }

  async count(i) {
    this.counts[i]++;
    await db.incr(this.key("n", i));
  }

  // A pipeline of this client is for one node, so that all its keys are in one slot.
  async pipeline(i) {
    this.texts[i] = String(Math.random());
    this.counts[i]++;
    const p = db.pipeline();
    p.set(this.key("s", i), this.texts[i]);
    p.hset(this.key("h", i), "f", this.texts[i]);
    p.incr(this.key("n", i));
    this.failed(await p.exec());
  }

  async transaction(i) {
    this.texts[i] = String(Math.random());
    this.counts[i]++;
    const t = db.multi();
    t.set(this.key("s", i), this.texts[i]);
    t.hset(this.key("h", i), "f", this.texts[i]);
    t.incr(this.key("n", i));
    this.failed(await t.exec());
  }

  failed(replies) {
    for (const [err] of replies || [[new Error("no replies")]]) {
      if (err) throw err;
    }
  }

  async run() {
    const all = ["read", "write", "count", "pipeline", "transaction"];
    while (!stopped) {
      const i = Math.floor(Math.random() * keys);
      const name = all[Math.floor(Math.random() * all.length)];
      try {
        await this[name](i);
      } catch (err) {
        const text = `${err.name}: ${err.message}`;
        errors[text] = (errors[text] || 0) + 1;
        this.doubtful.add(i); // whether it was done is not known
      }
      ops++;
    }
  }
}

async function main() {
  const all = Array.from({ length: workers }, (_, n) => new Worker(n));
  await Promise.all(all.map((w) => w.fill()));
  console.log("ready");
  process.stdin.resume();
  process.stdin.on("end", () => (stopped = true));
  await Promise.all(all.map((w) => w.run()));
  console.log(JSON.stringify({ ops, errors, wrong: wrong.slice(0, 20) }));
  db.disconnect();
  process.exit(0);
}

main();
