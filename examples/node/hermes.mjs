// Hermes Peer in Node's standard library: the side that dials and calls. Sections named here are those of docs/spec/.
// Knows: hermes-link/1 with suite 2, records, one session on one link, calls, streams of items.
// Left out: listening, resuming, methods of its own, suite 1 (Node 20 has no ML-KEM; `kem` is the place for one).
import crypto from 'node:crypto'
import fs from 'node:fs'
import net from 'node:net'
class HermesError extends Error { constructor(message, fields) { super(message); Object.assign(this, fields) } }
export class LinkError extends HermesError {} // no link, or its end: `reason` is the code of CLOSE, `ran` "no" or "unknown"
export class CallError extends HermesError {} // the peer's answer: code, label (its name), reason, details …
const check = (held, otherwise) => { if (!held) throw new LinkError(otherwise) }
// ---- bytes and keys (handshake, sections 1 and 2)
const EMPTY = Buffer.alloc(0), ZERO = Buffer.alloc(32), PROTOCOL = Buffer.from('hermes-link/1')
const SPKI = Buffer.from('302a300506032b6570032100', 'hex'), X_SPKI = Buffer.from('302a300506032b656e032100', 'hex')
const X_PKCS8 = Buffer.from('302e020100300506032b656e04220420', 'hex')
const cat = (...parts) => Buffer.concat(parts)
const vec = (data, size) => cat(int(data.length, size), data) // a length of `size` bytes, then the bytes
const json = value => Buffer.from(JSON.stringify(value))
const u64 = (data, at) => Number(data.readBigUInt64BE(at)) // exact below 2^53, which no counter of ours reaches
const sha256 = data => crypto.createHash('sha256').update(data).digest()
const hmac = (key, data) => crypto.createHmac('sha256', key).update(data).digest()
const publicKey = spki => crypto.createPublicKey({ key: spki, format: 'der', type: 'spki' })
const spkiOf = key => crypto.createPublicKey(key).export({ format: 'der', type: 'spki' })
const int = (value, size) => Buffer.from(BigInt(value).toString(16).padStart(2 * size, '0'), 'hex')
export const expand = (secret, label, context = EMPTY, n = 32) =>
  hmac(secret, cat(int(n, 2), vec(Buffer.from(`hermes1 ${label}`), 1), vec(context, 1), int(1, 1))).subarray(0, n)
const keyAndIv = secret => [expand(secret, 'key'), expand(secret, 'iv', EMPTY, 12)]
function seal([key, nonce], plain, aad) { // AES-256-GCM, the tag behind the ciphertext
  const cipher = crypto.createCipheriv('aes-256-gcm', key, nonce).setAAD(aad)
  return cat(cipher.update(plain), cipher.final(), cipher.getAuthTag())
}
function open([key, nonce], sealed, aad) {
  const cipher = crypto.createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: 16 }).setAAD(aad)
  cipher.setAuthTag(sealed.subarray(-16))
  return cat(cipher.update(sealed.subarray(0, -16)), cipher.final())
}
export const identity = key => ({ key, spki: spkiOf(key), fingerprint: sha256(spkiOf(key)).toString('hex') })
export function loadKey(file) { // made at first use
  const fresh = () => crypto.generateKeyPairSync('ed25519').privateKey.export({ format: 'pem', type: 'pkcs8' })
  if (!fs.existsSync(file)) fs.writeFileSync(file, fresh(), { mode: 0o600, flag: 'wx' })
  return identity(crypto.createPrivateKey(fs.readFileSync(file)))
}
// ---- the handshake, dialling side (handshake, sections 3 and 4)
export class Dialler {
  constructor(options) { // own: an identity; peer: a fingerprint in hex; the rest has defaults
    Object.assign(this, { realm: ZERO, psk: ZERO, resumeId: EMPTY, suites: [2], kem: null, draw: crypto.randomBytes })
    Object.assign(this, { caps: EMPTY, now: Date.now() }, options)
    this.th = sha256(cat(PROTOCOL, int(0, 2))) // the binding of TCP is empty
  }
  mix(data) { this.th = sha256(cat(this.th, vec(data, 4))); return data }
  hello() {
    this.private = crypto.createPrivateKey({ key: cat(X_PKCS8, this.draw(32)), format: 'der', type: 'pkcs8' })
    this.random = this.draw(32)
    this.offer = cat(vec(int(1, 2), 1), vec(Buffer.from(this.suites), 1))
    const share = spkiOf(this.private).subarray(-32)
    const body = cat(this.offer, this.random, share, vec(this.kem?.ek ?? EMPTY, 2), vec(this.resumeId, 1))
    const toKey = sha256(cat(PROTOCOL, Buffer.from(' to'), this.realm, Buffer.from(this.peer, 'hex')))
    return this.mix(cat(int(1, 1), vec(cat(body, hmac(toKey, body).subarray(0, 16)), 3)))
  }
  welcome(message) { // gives READY; afterwards session, resumed, and the secrets send, receive, exporter, nextPsk
    const body = message.subarray(4), [suite, resumed] = body.subarray(2), end = 70 + body.readUInt16BE(68)
    const [random, share, ct] = [body.subarray(4, 36), body.subarray(36, 68), body.subarray(70, end)]
    check(message[0] === 2 && message.readUIntBE(1, 3) === body.length && resumed < 2, 'this is no WELCOME')
    check(body.readUInt16BE(0) === 1 && this.suites.includes(suite), 'a version or suite that was not offered')
    const unasked = (resumed && !this.resumeId.length) || random.equals(this.random)
    check(ct.length === (suite === 1 ? 1088 : 0) && !unasked, 'this goes with no HELLO of ours')
    this.mix(body.subarray(0, end))
    const x25519 = crypto.diffieHellman({ privateKey: this.private, publicKey: publicKey(cat(X_SPKI, share)) }) // or throws
    const shared = suite === 1 ? cat(this.kem.decapsulate(ct), x25519) : x25519
    const root = hmac(expand(hmac(this.realm, resumed ? this.psk : ZERO), 'derived'), shared) // Extract is one HMAC
    const [mine, theirs] = [expand(root, 'i hs', this.th), expand(root, 'r hs', this.th)]
    const master = hmac(expand(root, 'derived'), ZERO)
    Object.assign(this, { session: this.#openBlock(theirs, body.subarray(end), suite), resumed: resumed === 1 })
    const ready = this.#sealBlock(mine)
    const [send, receive, exporter, nextPsk] = ['i ap', 'r ap', 'exp', 'res'].map(label => expand(master, label, this.th))
    Object.assign(this, { send, receive, exporter, nextPsk })
    return cat(int(3, 1), vec(ready, 3))
  }
  #openBlock(secret, sealed, suite) { // the acceptor's proof, in this order; gives the session id
    const plain = open(keyAndIv(secret), sealed, this.th)
    const body = plain.subarray(0, -96), signature = plain.subarray(-96, -32), fin = plain.subarray(-32)
    let at = 1
    const take = n => body.subarray(at, at += n), field = size => take(take(size).readUIntBE(0, size))
    const [spki, caps, versions, suites, session] = [field(2), field(2), field(1), field(1), take(16), take(8)]
    check(!field(2).some(Boolean) && at === body.length && at % 256 === 0 && caps.length <= 4096, 'an odd AuthBlock')
    check(body[0] === 0 && spki.length === 44 && spki.indexOf(SPKI) === 0, 'no Ed25519 key')
    this.mix(body)
    const signed = cat(PROTOCOL, Buffer.from(' responder sig\0'), this.th)
    check(crypto.verify(null, signed, publicKey(spki), signature), 'a wrong signature')
    this.mix(signature)
    check(crypto.timingSafeEqual(fin, hmac(expand(secret, 'fin'), this.th)), 'a wrong fin')
    this.mix(fin)
    check(sha256(spki).toString('hex') === this.peer, 'another key than the one that was dialled')
    const best = [1, 2].find(each => this.suites.includes(each) && suites.includes(each))
    check(best === suite && versions.toString('hex').match(/.{4}/g)?.includes('0001'), 'somebody talked the choice down')
    return session
  }
  #sealBlock(secret) { // our own proof
    const before = this.th, own = cat(int(0, 1), vec(this.own.spki, 2), vec(this.caps, 2), this.offer, this.session)
    const body = this.mix(cat(own, int(this.now, 8), vec(Buffer.alloc(255 - (own.length + 9) % 256), 2))) // 256, 512 …
    const signature = this.mix(crypto.sign(null, cat(PROTOCOL, Buffer.from(' initiator sig\0'), this.th), this.own.key))
    const fin = this.mix(hmac(expand(secret, 'fin'), this.th))
    return seal(keyAndIv(secret), cat(body, signature, fin), before)
  }
}
// ---- frames and records (frames, sections 1, 2 and 4)
const [HELLO, WELCOME, READY, REFUSE, SEALED, LINK] = [1, 2, 3, 4, 5, 6], [SYN, FIN, RST, MORE, CRITICAL] = [1, 2, 4, 8, 128]
const [DATA, CREDIT, ACK, PING, PONG, REKEY, CLOSE, HEAD, WRAP] = [16, 17, 18, 19, 20, 22, 23, 19, 2 ** 32]
const head = (type, length, flags = 0, stream = 0, sequence = 0) =>
  cat(Buffer.from('HRMP\x01'), Buffer.of(type, flags), int(stream, 4), int(sequence % WRAP, 4), int(length, 4))
const frame = (type, body, ...more) => cat(head(type, body.length, ...more), body)
export function readFrames(data, take) { // `take` each whole frame; gives what is left
  while (data.length >= HEAD) {
    check(data.toString('latin1', 0, 5) === 'HRMP\x01', 'these bytes are not HRMP version 1')
    const length = data.readUInt32BE(15), end = HEAD + length
    check(length <= 65552, `a frame announces ${length} bytes`)
    if (end > data.length) break
    const whole = data.subarray(0, end), [type, flags] = data.subarray(5), body = whole.subarray(HEAD)
    take({ whole, type, flags, stream: data.readUInt32BE(7), sequence: data.readUInt32BE(11), body, last: end === data.length })
    data = data.subarray(end)
  }
  return data
}
export class Direction { // what one side sends: one key after another, records counted under each
  constructor(secret) { this.renew(secret) }
  renew(secret = expand(this.secret, 'upd')) { Object.assign(this, { secret, keys: keyAndIv(secret), counter: 0 }) }
  #next(size, work) { // with the header, key and nonce of the next record
    const header = head(SEALED, size, 0, 0, this.counter), nonce = Buffer.from(this.keys[1])
    nonce.writeUInt32BE((nonce.readUInt32BE(8) ^ this.counter++) >>> 0, 8)
    return work(header, [this.keys[0], nonce])
  }
  seal(plain) { return this.#next(plain.length + 16, (header, keys) => cat(header, seal(keys, plain, header))) }
  open(record) { // a whole SEALED frame
    return this.#next(record.length - HEAD, (header, keys) => {
      check(record.length >= HEAD + 16 && record.indexOf(header) === 0, 'a record with a wrong header')
      return open(keys, record.subarray(HEAD), header)
    })
  }
}
// ---- link, session, calls (session, messages)
const OURS = { frame: 16384, message: 5 * 2 ** 20, window: 49152, session_window: 2 ** 24, streams: 128 }
const windowOf = size => ({ size, limit: size, received: 0, consumed: 0 }) // what the peer may send (session, section 3)
const spend = (window, cost) => check((window.received += cost) <= window.limit, 'the peer sent more than its credit')
function giveBack(window, cost) { // true if the limit has risen, which it does once half the window is free
  const rises = (window.consumed += cost) + window.size - window.limit >= window.size / 2
  if (rises) window.limit = window.consumed + window.size
  return rises
}
export function connect(address, { own, name, realm = ZERO, timeout = 5000 }) { // hermes://FINGERPRINT@host:port
  const url = new URL(address), peer = url.username.toLowerCase()
  check(url.protocol === 'hermes:' && /^[0-9a-f]{64}$/.test(peer), 'an address is hermes://FINGERPRINT@host:port')
  check(peer !== own.fingerprint, 'this address belongs to our own key')
  const caps = json({ agent: name, instance: crypto.randomBytes(8).toString('hex'), ...OURS })
  const socket = net.connect(Number(url.port || 7891), url.hostname.replace(/^\[|\]$/g, '')).setNoDelay(true)
  return new Promise((up, failed) => new Peer(socket, new Dialler({ own, peer, realm, caps }), timeout, up, failed))
}
class Peer {
  #state = 'WELCOME'; #socket; #dialler; #settled; #opener; #sealer; #input = EMPTY; #out = [] // then LINK, OPEN, CLOSED
  #session = { window: windowOf(OURS.session_window), sent: 0, limit: 0 }; #streams = new Map(); #id = -1; #places = 0
  #next = 0; #told = 0; #owed = 0; #ack = false; #credits = new Set(); #sequence = 0 // DATA that came, DATA that left
  #timers = {}; #heard = Date.now(); #pings = 0; #rekeyed = 0
  constructor(socket, dialler, timeout, up, failed) {
    [this.#socket, this.#dialler, this.#settled] = [socket, dialler, { up, failed }]
    socket.on('data', data => this.#receive(data)).on('error', error => this.#end(error.message))
    socket.on('close', () => this.#end(this.#state === 'WELCOME'
      ? 'closed without an answer: that address is not of this key, or no Hermes Peer' : 'the connection was lost'))
    socket.write(frame(HELLO, dialler.hello())) // leaves once connected
    this.#timers.beat = setTimeout(() => this.#end('the handshake took too long', 15), timeout)
  }
  async call(...request) { // the result; items on the way are passed over
    const answer = this.stream(...request)
    let step = await answer.next()
    while (!step.done) step = await answer.next()
    return step.value
  }
  async *stream(method, payload = {}, { ttl = 30 } = {}) { // yields the items, returns the result
    const stream = this.#open(method, payload, ttl)
    try {
      for (;;) {
        for (let item; (item = stream.items.shift()); yield item.value) this.#consumed(stream, item.cost)
        if (stream.error) throw stream.error
        if (stream.done) return stream.result
        await new Promise(wake => { stream.wake = wake })
      }
    } finally { this.#leave(stream, 'the caller gave the call up', 1) }
  }
  close(reason = 13, text = 'done') { // CLOSE, mode end: link and session are over
    if (this.#state !== 'OPEN') return
    this.#out.push(frame(CLOSE, cat(Buffer.of(1, reason), int(WRAP - 1, 4), int(0, 4), Buffer.from(text).subarray(0, 512))))
    this.#flush()
    this.#end(text, reason)
  }
  // -- bytes in
  #receive(data) {
    this.#heard = Date.now()
    try {
      this.#input = readFrames(cat(this.#input, data), one => {
        if (this.#state === 'WELCOME') return this.#greet(one)
        check(one.type === SEALED, `a bare frame of type ${one.type}`)
        const rest = readFrames(this.#opener.open(one.whole), inner => this.#state === 'CLOSED' || this.#frame(inner))
        check(!rest.length && this.#state !== 'LINK', 'a record without LINK, or with half a frame')
      })
    } catch (error) {
      this.close(1, error.message) // if the link is open; an unproven peer is told nothing
      this.#end(error.message, 1)
    }
  }
  #greet({ type, flags, stream, sequence, body }) {
    check(type !== REFUSE, `an unproven peer refused: ${body.toString('utf8', 7 + 2 * body[1] + body[2])}`)
    check(type === WELCOME && !flags && !stream && !sequence, 'this is no WELCOME')
    const ready = this.#dialler.welcome(body), { receive, send } = this.#dialler;
    [this.#opener, this.#sealer, this.#state] = [new Direction(receive), new Direction(send), 'LINK']
    const link = cat(this.#dialler.session, int(0, 17)) // a new session: nothing has come, number 0 is next
    this.#socket.write(cat(frame(READY, ready), this.#sealer.seal(frame(LINK, link))))
  }
  #frame({ type, flags, stream: id, sequence, body, last }) { // frames, section 3
    const sizes = { [LINK]: [33], [CREDIT]: [id ? 8 : 16], [ACK]: [8, 0], [PING]: [29, 17], [PONG]: [29, 17], [CLOSE]: [10] }
    const [least = 0, mark] = sizes[type] ?? [] // the fixed part, and where in it an ACK stands
    check(body.length >= least, `the body of a frame of type ${type} is too short`)
    check(this.#state === 'OPEN' || type === LINK || type === CLOSE, 'the first record has no LINK')
    check(mark === undefined || u64(body, mark) <= this.#sequence, 'an ACK of what was never sent')
    if (type === DATA) this.#data(flags, id, sequence, body)
    else if (type === LINK && this.#state === 'LINK') this.#linked(body)
    else if (type === PING) this.#put(this.#load(PONG, u64(body, 0)))
    else if (type === CREDIT) { // limits only rise
      const own = id ? this.#streams.get(id) : this.#session
      if (own) own.limit = Math.max(own.limit, u64(body, 0))
      if (!id) this.#places = Math.max(this.#places, u64(body, 8))
      this.#send()
    } else if (type === CLOSE) { // session, section 6
      const [mode, reason, highest] = [body[0], body[1], body.readUInt32BE(2)]
      if (mode === 0 && reason === 5) this.draining = true // nothing new; what runs goes on
      else this.#end(body.toString('utf8', 10, 522) || 'closed', reason, mode === 1 && highest < WRAP - 1 ? highest : WRAP)
    } else if (type === REKEY) {
      check(last && Date.now() - this.#rekeyed >= 1000, 'a REKEY out of its place, or too soon')
      this.#rekeyed = Date.now()
      this.#opener.renew()
    } else check(!(flags & CRITICAL) && type > LINK, `a frame of type ${type} is not understood here`)
  }
  #linked(body) { // the peer holds the keys, and its caps are known (handshake, section 5; session, section 2)
    check(body.indexOf(this.#dialler.session) === 0 && body[16] === 0, 'LINK names another session')
    const theirs = { ...OURS, hb: {}, ...JSON.parse(body.subarray(33)) }
    for (const size of ['frame', 'message', 'streams']) this[size] = Math.min(theirs[size], OURS[size])
    const hb = { idle: Math.max(theirs.hb.idle_ms ?? 0, 15000), busy: Math.max(theirs.hb.busy_ms ?? 0, 5000) }
    Object.assign(this, { agent: theirs.agent, window: theirs.window, draining: false, hb });
    [this.#session.limit, this.#places, this.#state] = [theirs.session_window, this.streams, 'OPEN']
    this.#beat()
    this.#settled.up(this)
  }
  #data(flags, id, sequence, body) { // session, sections 1 to 3
    check(sequence === this.#next++ % WRAP, 'a DATA frame is missing') // and none comes twice on one link
    this.#owed += body.length
    if (this.#next - this.#told >= 32 || this.#owed >= 2 ** 18) this.#put(EMPTY, this.#ack = true)
    else this.#timers.ack ??= setTimeout(() => this.#put(EMPTY, this.#ack = true), 20)
    const cost = flags & RST ? 0 : Math.max(body.length, 64), stream = this.#streams.get(id)
    spend(this.#session.window, cost)
    if (!stream) { // over already, or a call to us, who have no methods
      if (flags & SYN) this.#put(frame(DATA, json({ code: 4, reason: 'no_methods' }), RST, id, this.#sequence++))
      return this.#consumed(null, cost)
    }
    if (flags & RST) return this.#settle(stream, { error: errorOf(body) })
    spend(stream.window, cost)
    check(body.length && !(flags & MORE && flags & FIN), 'a DATA frame that says nothing, or too much')
    stream.parts.push(body)
    check((stream.size += body.length) <= this.message, 'a message over the limit')
    if (flags & MORE) return this.#consumed(stream, cost) // else a long message would wait for its own window
    stream.size = 0
    this.#message(stream, cat(...stream.parts.splice(0)), cost, flags & FIN)
  }
  #message(stream, message, cost, last, kind = message[0]) { // messages, sections 1 and 3
    if (kind === 2 || kind === 7) {
      check(!last && message.length >= 9 && u64(message, 1) === stream.index++, 'an item out of its order')
      stream.items.push({ value: kind === 7 ? message.subarray(9) : JSON.parse(message.subarray(9)), cost })
      return stream.wake()
    }
    this.#consumed(stream, cost)
    if (kind === 6) return // PROGRESS, which this program shows to nobody
    check(kind === 4 && last && message.length >= 5, `message kind ${kind} where an answer belongs`)
    const start = 5 + message.readUInt32BE(1), payload = message.subarray(start)
    if (JSON.parse(message.subarray(5, start)).type === 'error') this.#settle(stream, { error: errorOf(payload) })
    else this.#settle(stream, { result: JSON.parse(payload) })
  }
  // -- our streams
  #open(method, payload, ttl) { // messages, section 2
    if (this.#state !== 'OPEN' || this.draining) throw new LinkError('this link takes no more calls', { ran: 'no' })
    const id = this.#id += 2, span_id = crypto.randomBytes(8).toString('hex'), message_id = `node-${span_id}`
    const unsent = cat(int(1, 1), vec(json({ method, ttl, message_id, span_id, timestamp: Date.now() }), 4), json(payload))
    if (unsent.length > this.message) throw new HermesError(`a message has at most ${this.message} bytes`)
    const stream = { id, unsent, sent: 0, limit: this.window, window: windowOf(OURS.window), parts: [], size: 0, index: 0 }
    stream.timer = setTimeout(() => this.#leave(stream, 'no answer within the ttl', 3), Math.min(ttl * 1000, 2 ** 31 - 1))
    this.#streams.set(id, Object.assign(stream, { items: [], wake() {} }))
    this.#send()
    return stream
  }
  #send() { // as much of every OPEN as credit allows; ids must rise in the order of their first frames
    for (const stream of this.#streams.values()) {
      while (stream.unsent.length) {
        const room = Math.min(this.frame, stream.limit - stream.sent, this.#session.limit - this.#session.sent)
        if (room < 64 || stream.id > 2 * (this.#places - 8)) break // the last eight places are for other things
        const part = stream.unsent.subarray(0, room), cost = Math.max(part.length, 64), first = stream.sent ? 0 : SYN
        stream.unsent = stream.unsent.subarray(room)
        stream.sent += cost
        this.#session.sent += cost
        this.#put(frame(DATA, part, first | (stream.unsent.length ? MORE : FIN), stream.id, this.#sequence++))
      }
      if (!stream.sent) return
    }
  }
  #settle(stream, outcome) {
    if (this.#streams.delete(stream.id)) clearTimeout(stream.timer)
    Object.assign(stream, outcome, { done: true }).wake()
  }
  #leave(stream, why, code) { // the end from our side; harmless once the answer is here
    for (const { cost } of stream.items.splice(0)) this.#consumed(stream, cost)
    if (stream.done) return
    const reason = 'cancelled', body = json({ code, reason, message: why })
    if (stream.sent) this.#put(frame(DATA, body, RST, stream.id, this.#sequence++))
    this.#settle(stream, { error: new CallError(why, { code, reason }) })
  }
  #consumed(stream, cost) { // credit goes back when the application has taken the bytes
    if (stream && giveBack(stream.window, cost) && !stream.done) this.#credits.add(stream)
    if (giveBack(this.#session.window, cost)) this.#credits.add(this.#session)
    if (this.#credits.size) this.#put(EMPTY)
  }
  // -- bytes out
  #load(type, n) { return frame(type, cat(int(n, 8), int(0, 9), int(this.#next, 8), int(1, 4))) } // idle, takes no calls
  #put(bytes) { // what is queued in one turn of the loop shares records
    if (bytes.length) this.#out.push(bytes)
    this.#timers.flush ??= setTimeout(() => this.#flush(), 0)
  }
  #flush() {
    const frames = this.#out.splice(0)
    if (this.#ack) frames.unshift(frame(ACK, int(this.#told = this.#next, 8)))
    if (this.#ack) [this.#owed, this.#ack, this.#timers.ack] = [0, false, clearTimeout(this.#timers.ack)]
    for (const { window, id = 0 } of this.#credits) {
      frames.unshift(frame(CREDIT, cat(int(window.limit, 8), id ? EMPTY : int(OURS.streams, 8)), 0, id))
    }
    this.#timers.flush = this.#credits.clear() // undefined: the next #put plans the next flush
    while (frames.length && this.#state === 'OPEN') {
      let plain = frames.shift()
      while (plain.length < 8192 && frames.length) plain = cat(plain, frames.shift())
      const due = this.#sealer.counter >= 2 ** 20
      this.#socket.write(this.#sealer.seal(due ? cat(plain, frame(REKEY, EMPTY)) : plain))
      if (due) this.#sealer.renew()
    }
  }
  #beat() { // session, section 5
    clearTimeout(this.#timers.beat)
    const patience = this.#streams.size ? 5 * this.hb.busy : 3 * this.hb.idle
    if (Date.now() - this.#heard > patience) return this.#end('nothing was heard any more', 15)
    this.#put(this.#load(PING, ++this.#pings))
    this.#timers.beat = setTimeout(() => this.#beat(), this.hb.busy * (0.8 + 0.4 * Math.random()))
  }
  #end(text, reason, last = WRAP) { // `last`: the highest stream of ours that the peer took
    if (this.#state === 'CLOSED') return
    this.#state = 'CLOSED'
    for (const timer of Object.values(this.#timers)) clearTimeout(timer)
    const lost = ({ sent, id }) => new LinkError(text, { reason, ran: sent && id <= last ? 'unknown' : 'no' })
    for (const stream of this.#streams.values()) this.#settle(stream, { error: lost(stream) })
    this.#settled.failed(lost({})) // means nothing once the link was up
    this.#socket.destroySoon()
  }
}
function errorOf(body) { // messages, section 4: what is missing has its default
  const { code = 1, name: label, reason = '', message, ...more } = body.length ? JSON.parse(body) : {}
  return new CallError(message || reason || 'no reason was given', { code, label, reason, ...more })
}
