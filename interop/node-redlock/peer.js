// A process that takes a lock with node-redlock, told what to do by lines; see ../README.md.
"use strict";

const fs = require("node:fs");
const readline = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const [host, port, name, lease] = process.argv.slice(2);
const client = new Redis(Number(port), host);
const settings = { retryDelay: 2, retryJitter: 1, driftFactor: 0.01 };
const once = new Redlock([client], { ...settings, retryCount: 0 });
const patient = new Redlock([client], { ...settings, retryCount: 100_000 });
let held;

// Every refusal is told as an event too, and without a listener it would end the process.
for (const lock of [once, patient]) lock.on("error", () => {});

async function obey([command, ...words]) {
  switch (command) {
    case "try":
      try {
        held = await once.acquire([name], Number(lease));
        return "yes";
      } catch {
        return "no";
      }
    case "extend":
      try {
        held = await held.extend(Number(lease));
        return "extended";
      } catch {
        return "lost";
      }
    case "release":
      try {
        await once.release(held, { retryCount: 0 });
        return "released";
      } catch {
        return "lost";
      }
    case "hammer":
      return hammer(Number(words[0]), Number(words[1]), words[2]);
  }
  return "what?";
}

async function hammer(rounds, holdMicros, path) {
  const file = fs.openSync(path, "r+");
  let overlaps = 0;
  for (let round = 0; round < rounds; round++) {
    const lock = await patient.acquire([name], Number(lease));
    const [alone, counter] = enter(file);
    await sleep(holdMicros / 1000);
    if (!leave(file, counter) || !alone) overlaps++;
    await patient.release(lock);
  }
  fs.closeSync(file);
  return JSON.stringify({ acquisitions: rounds, overlaps });
}

// Whether nobody was inside, and the counter to hand to leave.
function enter(file) {
  const alone = get(file, 0) === 0n;
  put(file, 0, BigInt(process.pid));
  return [alone, get(file, 8)];
}

// Whether nobody came in meanwhile.
function leave(file, counter) {
  put(file, 8, counter + 1n);
  const alone = get(file, 0) === BigInt(process.pid);
  put(file, 0, 0n);
  return alone;
}

function get(file, at) {
  const bytes = Buffer.alloc(8);
  fs.readSync(file, bytes, 0, 8, at);
  return bytes.readBigUInt64LE();
}

function put(file, at, value) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(value);
  fs.writeSync(file, bytes, 0, 8, at);
}

async function main() {
  console.log("ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(await obey(line.split(" ")));
  }
  client.disconnect();
}

main().catch((error) => {
  console.log(`error ${error}`);
  process.exit(1);
});
