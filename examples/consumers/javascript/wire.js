// SPDX-License-Identifier: Apache-2.0

// What consumer.js and producer.js share: the client's settings, and the two forms of a value.

import avro from 'avsc'
import { Kafka, logLevel } from 'kafkajs'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const MARKER = Buffer.from([0xc3, 0x01])

// A long of Avro has 64 bits, and a number of JavaScript 53: values are BigInt.
const long = avro.types.LongType.__with({
  fromBuffer: (buffer) => buffer.readBigInt64LE(),
  toBuffer: (value) => {
    const buffer = Buffer.alloc(8)
    buffer.writeBigInt64LE(value)
    return buffer
  },
  fromJSON: BigInt,
  toJSON: Number,
  isValid: (value) => typeof value === 'bigint',
  compare: (one, other) => (one === other ? 0 : one < other ? -1 : 1),
})

/** Return the type of a schema; a value of a union is wrapped by the name of its branch, null is null. */
export const typeOf = (schema) =>
  avro.Type.forSchema(schema, {
    typeHook: (each) => (each === 'long' || each.type === 'long' ? long : undefined),
    wrapUnions: true,
  })

/** Return the client of a file with `key=value` lines, whose names are librdkafka's. */
export function clientOf(path) {
  const lines = readFileSync(path, 'utf8').trim().split('\n')
  const settings = Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]))
  const mechanism = settings['sasl.mechanism']
  return new Kafka({
    clientId: 'verdicts',
    brokers: settings['bootstrap.servers'].split(','),
    ssl: /SSL$/i.test(settings['security.protocol'] ?? '') && {
      ca: settings['ssl.ca.location'] && [readFileSync(settings['ssl.ca.location'], 'utf8')],
      cert: settings['ssl.certificate.location'] && readFileSync(settings['ssl.certificate.location'], 'utf8'),
      key: settings['ssl.key.location'] && readFileSync(settings['ssl.key.location'], 'utf8'),
    },
    sasl: mechanism && {
      mechanism: mechanism.toLowerCase(),
      username: settings['sasl.username'],
      password: settings['sasl.password'],
    },
    logLevel: logLevel.NOTHING, // what goes wrong is raised
  })
}

/** Return the CRC-64-AVRO of a schema's Parsing Canonical Form, 8 bytes as they are on the wire. */
export function fingerprintOf(schema) {
  let fingerprint = EMPTY
  for (const byte of Buffer.from(canonical(schema))) {
    fingerprint = (fingerprint >> 8n) ^ TABLE[Number((fingerprint ^ BigInt(byte)) & 0xffn)]
  }
  const buffer = Buffer.alloc(8)
  buffer.writeBigUInt64LE(fingerprint)
  return buffer
}

const EMPTY = 0xc15d213aa4d7a795n
const TABLE = Array.from({ length: 256 }, (_, index) => {
  let row = BigInt(index)
  for (let bit = 0; bit < 8; bit += 1) row = (row >> 1n) ^ (row & 1n ? EMPTY : 0n)
  return row
})

const KEPT = ['name', 'type', 'fields', 'symbols', 'items', 'values', 'size']

function canonical(schema) {
  if (typeof schema === 'string') return JSON.stringify(schema)
  if (Array.isArray(schema)) return `[${schema.map(canonical).join(',')}]`
  const names = KEPT.filter((name) => name in schema)
  if (names.length === 1) return canonical(schema.type) // a primitive type with a logical one
  const parts = names.map((name) => {
    const value = schema[name]
    const isPlain = name === 'name' || name === 'symbols' || name === 'size'
    return `"${name}":${isPlain ? JSON.stringify(value) : canonical(value)}`
  })
  return `{${parts.join(',')}}`
}

/** The schemas of a folder of .avsc files, with every version that may occur on a topic. */
export class Schemas {
  constructor(folder, registry) {
    this.registry = registry
    this.byFingerprint = new Map()
    this.byId = new Map()
    this.all = readdirSync(folder)
      .filter((name) => name.endsWith('.avsc'))
      .map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')))
    for (const schema of this.all) this.byFingerprint.set(fingerprintOf(schema).toString('hex'), typeOf(schema))
  }

  /** Return the record that a value holds, plain or in the framing of a schema registry. */
  async decode(value) {
    if (value.length >= 10 && value.subarray(0, 2).equals(MARKER)) {
      const fingerprint = value.subarray(2, 10).toString('hex')
      const type = this.byFingerprint.get(fingerprint)
      if (type === undefined) throw new Error(`no .avsc file has the fingerprint ${fingerprint}`)
      return type.fromBuffer(value.subarray(10))
    }
    if (value.length >= 5 && value[0] === 0) {
      const id = value.readUInt32BE(1)
      if (!this.byId.has(id)) this.byId.set(id, await this.#ask(id))
      return this.byId.get(id).fromBuffer(value.subarray(5))
    }
    throw new Error(`expected c301 or 00, found a value of ${value.length} bytes`)
  }

  async #ask(id) {
    if (this.registry === undefined) throw new Error(`schema id ${id}: --registry is missing`)
    const answer = await fetch(`${this.registry}/schemas/ids/${id}`, { signal: AbortSignal.timeout(10_000) })
    const found = await answer.json()
    if (!answer.ok) throw new Error(`schema id ${id}: ${answer.status}: ${found.message}`)
    return typeOf(JSON.parse(found.schema))
  }

  /** Return a record in the plain form. */
  encode(name, record) {
    const schema = this.all.find((each) => each.name === name)
    if (schema === undefined) throw new Error(`no .avsc file has the record ${name}`)
    return Buffer.concat([MARKER, fingerprintOf(schema), typeOf(schema).toBuffer(record)])
  }
}
