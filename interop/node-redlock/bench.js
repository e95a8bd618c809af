// node-redlock as a side of the bench: takes locks under load and notes when; see ../README.md.
"use strict";

const fs = require("node:fs");
const readline = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const LEASE_MS = 30_000;

const [host, port] = process.argv[2].split(":");
const client = new Redis(Number(port), host);
// Its own settings, but for the number of tries: a waiter waits.
const redlock = new Redlock([client], { retryCount: -1 });
// Every refusal is told as an event too, and without a listener it would end the process.
redlock.on("error", () => {});

const now = () => process.hrtime.bigint();

async function run(order) {
  const stamps = [];
  const tasks = [];
  const early = Number(BigInt(order.start_ns) - now()) / 1e6;
  if (early > 0) await sleep(early);
  for (let number = 0; number < order.tasks; number++) {
    const name = order.names === "one" ? order.name : `${order.name} ${number}`;
    tasks.push(work(name, number, order, stamps));
  }
  await Promise.all(tasks);
  fs.writeFileSync(order.file, stamps.join(""));
  return stamps.length;
}

async function work(name, number, order, stamps) {
  const stop = BigInt(order.stop_ns);
  let first = true;
  for (let asked = now(); asked < stop || first; asked = now()) {
    first = false;
    const lock = await redlock.acquire([name], LEASE_MS);
    const entered = now();
    if (order.hold_us > 0) await sleep(order.hold_us / 1000);
    const leaving = now();
    await redlock.release(lock);
    stamps.push(`${number} ${asked} ${entered} ${leaving} ${now()}\n`);
  }
}

async function main() {
  await client.ping();
  console.log("ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer;
    try {
      // Nanoseconds since the machine was started: exact in a double for a hundred days.
      const count = await run(JSON.parse(line).run);
      answer = { done: { count, at_ns: Number(now()) } };
    } catch (error) {
      answer = { failed: String(error) };
    }
    console.log(JSON.stringify(answer));
  }
  client.disconnect();
}

main().catch((error) => {
  console.log(`error ${error}`);
  process.exit(1);
});
