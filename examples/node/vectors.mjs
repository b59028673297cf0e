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

// An acceptor that knows how to prove itself, and lies in one place: each check of the dialler is met alone.
const hash = data => crypto.createHash('sha256').update(data).digest()
const hmac = (secret, data) => crypto.createHmac('sha256', secret).update(data).digest()
const cat = (...parts) => Buffer.concat(parts)
const sized = (data, size) => cat(Buffer.from(data.length.toString(16).padStart(2 * size, '0'), 'hex'), data)
function lie(change) {
  const v = file.suite_2, draws = [bytes(v.dialler_ephemeral), bytes(v.dialler_random)], realm = bytes(v.realm)
  const own = identity(key(v.dialler_seed)), one = { version: 1, suite: 2, resumed: 0, random: bytes(v.acceptor_random), ct: '' }
  Object.assign(one, { seed: v.acceptor_seed, kind: 0, caps: '', versions: '0001', suites: '02', zeros: null, offered: [2] }, change)
  const dialler = new Dialler({ own, peer: v.acceptor_fingerprint, suites: one.offered, draw: () => draws.shift(), kem: one.kem })
  let th = bytes(v.th0)
  const mix = data => { th = hash(cat(th, sized(data, 4))); return data }
  mix(dialler.hello())
  const share = bytes(v.welcome).subarray(4 + 36, 4 + 68)
  const clear = mix(cat(Buffer.of(0, one.version, one.suite, one.resumed), one.random, share, sized(bytes(one.ct), 2)))
  const secret = expand(hmac(expand(hmac(realm, bytes(v.psk)), 'derived'), bytes(v.shared)), 'r hs', th), before = th
  const signer = identity(key(one.seed))
  const head = cat(Buffer.of(one.kind), sized(signer.spki, 2), sized(bytes(one.caps), 2), sized(bytes(one.versions), 1),
    sized(bytes(one.suites), 1), bytes(v.session), Buffer.alloc(8))
  const body = mix(cat(head, sized(one.zeros ?? Buffer.alloc((512 - (head.length + 2) % 256) % 256), 2)))
  const signature = crypto.sign(null, cat(Buffer.from(one.context ?? 'hermes-link/1 responder sig\0'), th), signer.key)
  mix(signature)
  const fin = hmac(expand(secret, 'fin'), th)
  if (one.fin) fin[0] ^= 1
  const cipher = crypto.createCipheriv('aes-256-gcm', expand(secret, 'key'), expand(secret, 'iv', Buffer.alloc(0), 12))
  const sealed = cat(cipher.setAAD(before).update(cat(body, signature, fin)), cipher.final(), cipher.getAuthTag())
  return dialler.welcome(cat(Buffer.of(2), sized(cat(clear, sealed), 3)))
}
assert.ok(lie({}).length > 300, 'the acceptor that does not lie is not believed')
const lies = {
  'a version that was not offered': [{ version: 2 }, /not offered/],
  'a suite that was not offered': [{ suite: 1 }, /not offered/],
  'a ciphertext without suite 1': [{ ct: '00'.repeat(1088) }, /no HELLO of ours/],
  'resumed, unasked': [{ resumed: 1 }, /no HELLO of ours/],
  'resumed, neither 0 nor 1': [{ resumed: 2 }, /no WELCOME/],
  'our own random': [{ random: bytes(file.suite_2.dialler_random) }, /no HELLO of ours/],
  'another kind of certificate': [{ kind: 1 }, /no Ed25519 key/],
  'padding that is not zeros': [{ zeros: Buffer.alloc(129, 1) }, /odd AuthBlock/],
  'no padding': [{ zeros: Buffer.alloc(0) }, /odd AuthBlock/],
  'the dialler\'s context': [{ context: 'hermes-link/1 initiator sig\0' }, /wrong signature/],
  'a wrong fin': [{ fin: true }, /wrong fin/],
  'another key': [{ seed: '07'.repeat(32) }, /another key/],
  'a choice talked down': [{ offered: [1, 2], suites: '0102', kem: { ek: Buffer.alloc(1184) } }, /talked the choice down/],
  'a version talked down': [{ versions: '0002' }, /talked the choice down/],
}
for (const [name, [change, said]] of Object.entries(lies)) assert.throws(() => lie(change), said, name)
checked += Object.keys(lies).length
console.log(`lies: ${Object.keys(lies).length} of an acceptor, each refused for what it is`)

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
