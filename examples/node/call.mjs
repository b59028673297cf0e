#!/usr/bin/env node
// One call from the command line: items as they come, one JSON text a line, then the result.
import { CallError, connect, loadKey } from './hermes.mjs'

const USAGE = `node call.mjs [--name NAME] [--ttl SECONDS] ADDRESS KEYFILE METHOD [JSON]
node call.mjs --show-key KEYFILE

ADDRESS is hermes://FINGERPRINT@HOST:PORT. KEYFILE (Ed25519, PEM) is made if it is not there; the other side pins
its fingerprint under NAME (default: node-client). Exit: 0 done, 1 the answer was an error, 2 no link or wrong use.`

const words = process.argv.slice(2), options = { name: 'node-client', ttl: '30' }
while (['--name', '--ttl'].includes(words[0])) options[words.shift().slice(2)] = words.shift()
const shown = value => Buffer.isBuffer(value) ? { bytes: value.toString('base64') } : value
const print = value => console.log(JSON.stringify(shown(value)))

async function main() {
  if (words[0] === '--show-key' && words.length === 2) return console.log(loadKey(words[1]).fingerprint)
  if (words.length < 3 || words.length > 4) throw new Error(USAGE)
  const [address, keyFile, method, json = '{}'] = words
  const peer = await connect(address, { own: loadKey(keyFile), name: options.name })
  try {
    const answer = peer.stream(method, JSON.parse(json), { ttl: Number(options.ttl) })
    for (let step; !(step = await answer.next()).done || print(step.value);) print(step.value)
  } finally { peer.close() }
}

main().catch(error => {
  console.error(error instanceof CallError ? `${error.label ?? 'ERROR'} ${error.code} ${error.reason}: ${error.message}` : error.message)
  process.exitCode = error instanceof CallError ? 1 : 2
})
