// Checks conformance/vectors with the code of hermes.mjs: `node vectors.mjs`. Knows: the files' names of things.
import crypto from 'node:crypto'
import fs from 'node:fs'
import assert from 'node:assert/strict'
import { Dialler, Direction, expand, identity, readFrames } from './hermes.mjs'

const read = name => JSON.parse(fs.readFileSync(new URL(`../../conformance/vectors/${name}.json`, import.meta.url)))
const bytes = text => Buffer.from(text, 'hex'), hex = data => data.toString('hex')
const file = read('handshake'), frames = read('frames')
const SEED = bytes('302e020100300506032b657004220420') // PKCS8 of an Ed25519 seed
const key = seed => crypto.createPrivateKey({ key: Buffer.concat([SEED, bytes(seed)]), format: 'der', type: 'pkcs8' })
let checked = 0
function same(found, wanted, what) {
  assert.equal(found, wanted, what)
  checked++
}

for (const name of ['suite_2', 'suite_1', 'resumed']) {
  const v = file[name], draws = [bytes(v.dialler_ephemeral), bytes(v.dialler_random)]
  const kem = v.mlkem_ek && {
    ek: bytes(v.mlkem_ek),
    decapsulate(ct) {
      assert.equal(hex(ct), v.mlkem_ct)
      return bytes(v.mlkem_shared) // Node 20 has no ML-KEM: its shared secret is taken from the vector
    },
  }
  const dialler = new Dialler({
    own: identity(key(v.dialler_seed)), peer: v.acceptor_fingerprint, realm: bytes(v.realm), psk: bytes(v.psk),
    resumeId: bytes(v.resume_id), suites: v.suites_offered, kem, draw: () => draws.shift(), caps: bytes(v.dialler_caps),
    now: v.dialler_time_ms,
  })
  same(dialler.own.fingerprint, v.dialler_fingerprint)
  same(hex(dialler.th), v.th0)
  same(hex(dialler.hello()), v.hello, `${name}: hello`)
  same(hex(dialler.welcome(bytes(v.welcome))), v.ready, `${name}: ready`)
  same(hex(dialler.th), v.th_final)
  same(hex(dialler.session), v.session)
  same(dialler.resumed, v.resumed)
  same(hex(dialler.send), v.dialler_secret)
  same(hex(dialler.receive), v.acceptor_secret)
  same(hex(dialler.exporter), v.exporter)
  same(hex(dialler.nextPsk), v.next_psk)
  for (const [role, list] of [[1, v.next_resume_ids_dialler_is_originator], [2, v.next_resume_ids_dialler_is_other]]) {
    list.forEach((id, n) => same(hex(expand(dialler.nextPsk, 'resume id', Buffer.of(role, n), 16)), id))
  }
  console.log(`${name}: HELLO, READY and every secret are as the file says`)

  // One bit flipped anywhere in WELCOME: the dialler must not go on to show who it is.
  for (let at = 0; at < bytes(v.welcome).length; at += 7) {
    const forged = bytes(v.welcome), dice = [bytes(v.dialler_ephemeral), bytes(v.dialler_random)]
    forged[at] ^= 1
    const again = new Dialler({ ...dialler, draw: () => dice.shift() })
    again.th = bytes(v.th0)
    again.hello()
    assert.throws(() => again.welcome(forged), `${name}: byte ${at} of WELCOME may be changed`)
    checked++
  }
}

const out = new Direction(bytes(file.sealed.secret)), back = new Direction(bytes(file.sealed.secret))
let rekeys = 0
for (const record of file.sealed.records) {
  if (record.rekeys_before > rekeys) [out, back].forEach(direction => direction.renew())
  rekeys = record.rekeys_before
  same(hex(out.seal(bytes(record.plain))), record.record)
  same(hex(back.open(bytes(record.record))), record.plain)
}
same(hex(out.secret), file.sealed.secret_after_rekey)
assert.throws(() => back.open(bytes(file.sealed.records[0].record)), 'an old record opens again')
console.log(`sealed: ${file.sealed.records.length} records there and back`)

for (const good of frames.frames) {
  const found = []
  same(readFrames(bytes(good.frame), one => found.push(one)).length, 0, good.name)
  for (const field of ['type', 'flags', 'stream', 'sequence']) same(found[0][field], good[field], good.name)
  same(hex(found[0].body), good.body, good.name)
}
for (const bad of frames.bad_frames.filter(each => each.layer === 'header')) {
  let whole = false
  try { whole = readFrames(bytes(bad.bytes), () => {}).length === 0 } catch { /* refused */ }
  same(whole, false, `${bad.name} is taken for whole frames`)
}
console.log(`frames: ${frames.frames.length} headers, and the broken ones`)
console.log(`all ${checked} checks hold`)
