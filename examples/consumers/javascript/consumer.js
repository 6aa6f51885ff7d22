// SPDX-License-Identifier: Apache-2.0

// Prints committed verdicts as JSON lines, in either form of the wire format, and continues after the last one that it has printed.
//
//   node consumer.js [--para N] [--count N] [--topic T] [--registry URL] SETTINGS GROUP SCHEMAS
//
// SETTINGS are `key=value` lines with librdkafka's names, SCHEMAS is a folder of .avsc files with every version that may occur.

import { writeSync } from 'node:fs'
import { parseArgs } from 'node:util'

import { clientOf, Schemas } from './wire.js'

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    para: { type: 'string' },
    count: { type: 'string' },
    topic: { type: 'string', default: 'validator.verdicts' },
    registry: { type: 'string' },
  },
})

function shown(record) {
  return {
    lane: record.lane,
    block: Number(record.block),
    kind: record.kind,
    index: Number(record.index),
    para_id: Number(record.para_id),
    outcome: record.outcome,
    error: record.error === null ? null : record.error['validator.RuleError'].kind,
    id: `0x${Buffer.from(record.id).toString('hex')}`,
  }
}

async function run(settings, group, folder) {
  const { topic, registry } = options
  const para = options.para === undefined ? undefined : BigInt(options.para)
  let left = options.count === undefined ? Infinity : Number(options.count)
  const schemas = new Schemas(folder, registry)
  const kafka = clientOf(settings)
  const admin = kafka.admin()
  await admin.connect()
  try {
    if (!(await admin.listTopics()).includes(topic)) throw new Error(`topic ${topic} does not exist`)
  } finally {
    await admin.disconnect()
  }
  // kafkajs reads committed records unless it is told otherwise. Without it, verdicts of batches that are never committed are read, too.
  const consumer = kafka.consumer({ groupId: group, readUncommitted: false, retry: { retries: 0 } })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  try {
    await new Promise((end, fail) => {
      if (left === 0) end()
      let ended = false // kafkajs calls for further partitions until it is disconnected
      consumer.run({
        autoCommit: false,
        partitionsConsumedConcurrently: 1,
        eachBatchAutoResolve: false,
        eachBatch: async ({ batch, heartbeat, resolveOffset }) => {
          if (ended) return
          let next
          let failed
          for (const message of batch.messages) {
            if (left === 0) break
            try {
              const record = await schemas.decode(message.value)
              if (para === undefined || record.para_id === para) {
                writeSync(1, `${JSON.stringify(shown(record))}\n`)
                left -= 1
              }
            } catch (error) {
              failed = new Error(`${topic}[${batch.partition}]@${message.offset}: ${error.message}`)
              break
            }
            next = (BigInt(message.offset) + 1n).toString()
            resolveOffset(message.offset) // the next fetch begins behind it; a commit alone does not move it
          }
          ended = left === 0 || failed !== undefined
          // After the output: a program that ends before this prints these verdicts again, and loses none.
          if (next !== undefined) await consumer.commitOffsets([{ topic, partition: batch.partition, offset: next }])
          await heartbeat()
          if (failed !== undefined) fail(failed)
          else if (ended) end()
        },
      }).catch(fail)
      consumer.on(consumer.events.CRASH, ({ payload }) => fail(payload.error))
    })
  } finally {
    await consumer.disconnect()
  }
}

if (positionals.length !== 3) {
  console.error('expected SETTINGS GROUP SCHEMAS')
  process.exit(1)
}
run(...positionals).catch((error) => {
  console.error(error.message)
  process.exit(1)
})
