#!/usr/bin/env node
// One call from the command line: items as they come, one JSON text a line, then the result.
import { CallError, connect, loadKey } from './hermes.mjs'
const USAGE = 'call.mjs [--name NAME] [--ttl SECONDS] ADDRESS KEYFILE METHOD [JSON], or: call.mjs --show-key KEYFILE'
const words = process.argv.slice(2), options = { name: 'node-client', ttl: '30' }
while (['--name', '--ttl'].includes(words[0])) options[words.shift().slice(2)] = words.shift()
const print = value => console.log(JSON.stringify(Buffer.isBuffer(value) ? { bytes: value.toString('base64') } : value))

async function main([address, keyFile, method, payload = '{}', ...rest]) {
  if (address === '--show-key' && keyFile) return console.log(loadKey(keyFile).fingerprint)
  if (!method || rest.length) throw new Error(USAGE)
  const peer = await connect(address, { own: loadKey(keyFile), name: options.name })
  const answer = peer.stream(method, JSON.parse(payload), { ttl: Number(options.ttl) })
  try {
    for (let done = false, value; !done; print(value)) ({ done, value } = await answer.next())
  } finally { peer.close() }
}
main(words).catch(error => {
  const answered = error instanceof CallError
  console.error(answered ? `${error.label ?? 'error'} (${error.code}) ${error.reason}: ${error.message}` : error.message)
  process.exitCode = answered ? 1 : 2
})
