// SPDX-License-Identifier: Apache-2.0

// Sends one block with a candidate that sends nothing, the record of the block last: the lane executes it once all of its records are there.
//
//   node producer.js [--prefix P] SETTINGS SCHEMAS LANE BLOCK PARA WATERMARK
//
// SCHEMAS has at least the schemas of Block and Candidate (`validator schemas show`).

import { parseArgs } from 'node:util'

import { clientOf, Schemas } from './wire.js'

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { prefix: { type: 'string', default: 'validator.' } },
})

async function run(settings, folder, lane, block, para, watermark) {
  const schemas = new Schemas(folder)
  const candidate = {
    lane,
    block: BigInt(block),
    index: 0n,
    para_id: BigInt(para),
    relay_parent_number: null,
    hrmp_watermark: BigInt(watermark),
    upward_messages: [],
    processed_downward_messages: 0n,
    horizontal_messages: [],
    candidate_hash: null,
  }
  const head = {
    lane,
    block: BigInt(block),
    parent_number: null,
    block_hash: null,
    candidates: 1n,
    requests: 0n,
    downward: 0n,
    included: [],
    timed_out: [],
    session_change: null,
  }
  // A record counts as sent once all in-sync replicas have it, and a repeated send adds nothing.
  const producer = clientOf(settings).producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  try {
    for (const [topic, name, record] of [
      ['candidates', 'validator.router.Candidate', candidate],
      ['blocks', 'validator.Block', head],
    ]) {
      const messages = [{ key: lane, value: schemas.encode(name, record) }]
      await producer.send({ topic: options.prefix + topic, acks: -1, messages })
    }
  } finally {
    await producer.disconnect()
  }
}

if (positionals.length !== 6) {
  console.error('expected SETTINGS SCHEMAS LANE BLOCK PARA WATERMARK')
  process.exit(1)
}
run(...positionals).catch((error) => {
  console.error(error.message)
  process.exit(1)
})
