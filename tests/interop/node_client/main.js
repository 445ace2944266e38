/**
 * Drives real RocketMQ clients: a command per line on standard input, JSON lines on standard
 * output, as the Java driver beside this one.
 *
 * A command is a form-encoded line with "id" and "op"; its answer has the same "id" and "done" or
 * "error". Commands run side by side, so answers come in any order. What push consumers receive
 * comes in between as lines with "event". Ends with its standard input.
 */
'use strict';

const readline = require('readline');
const { Consumer, Producer, Message } = require('ali-ons');
const ConsumeFromWhere = require('ali-ons/lib/consumer/consume_from_where');

const TEXT_BYTES_MAX = 64;
// The library asks for a client of a look-up service, which an address of its own makes needless.
const NO_LOOK_UP = { request() { throw new Error('there is no look-up service'); } };
const QUIET = { info() {}, debug() {}, warn() {}, error() {} };

const producers = new Map();
const consumers = new Map();
const floods = new Map();
const watched = new Map();

function emit(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

function number(fields, name, otherwise) {
  return fields.has(name) ? Number(fields.get(name)) : otherwise;
}

function settings(fields) {
  const chosen = {
    httpclient: NO_LOOK_UP,
    logger: QUIET,
    nameSrv: fields.get('ns'),
    instanceName: fields.get('instance'),
  };
  const times = {
    route_ms: 'pollNameServerInteval',
    heartbeat_ms: 'heartbeatBrokerInterval',
    rebalance_ms: 'rebalanceInterval',
    compress_over: 'compressMsgBodyOverHowmuch',
  };
  for (const [ field, option ] of Object.entries(times)) {
    if (fields.has(field)) chosen[option] = number(fields, field);
  }
  return chosen;
}

function bodies(fields) {
  return fields.getAll('body').map(text => Buffer.from(text, 'base64'));
}

function message(fields, body) {
  const built = new Message(fields.get('topic'), body);
  // A message without tags would carry the text "null".
  delete built.properties.TAGS;
  if (fields.has('tags')) built.tags = fields.get('tags');
  if (fields.has('keys')) built.keys = fields.get('keys').split(' ');
  if (fields.has('shard')) built.shardingKey = fields.get('shard');
  if (fields.has('delay_level')) built.delayTimeLevel = number(fields, 'delay_level');
  built.flag = number(fields, 'flag', 0);
  for (const property of fields.getAll('property')) {
    const split = property.indexOf('=');
    built.properties[property.slice(0, split)] = property.slice(split + 1);
  }
  return built;
}

function sent(result) {
  return {
    status: result.sendStatus,
    offset_msg_id: result.msgId,
    queue_offset: Number(result.queueOffset),
    queue: Number(result.messageQueue.queueId),
    topic: result.messageQueue.topic,
    broker: result.messageQueue.brokerName,
  };
}

function described(got) {
  const row = {
    queue: got.queueId,
    offset: got.queueOffset,
    reconsume_times: got.reconsumeTimes,
    topic: got.topic,
    body: got.body.toString('base64'),
    properties: got.properties,
    tags: got.tags,
    keys: got.keys,
    flag: got.flag,
    sys_flag: got.sysFlag,
    body_crc: got.bodyCRC,
    offset_msg_id: got.msgId,
    msg_id: got.properties.UNIQ_KEY || got.msgId,
    born_timestamp: got.bornTimestamp,
    store_timestamp: got.storeTimestamp,
    store_host: got.storeHost,
    store_size: got.storeSize,
    log_offset: got.commitLogOffset,
  };
  if (got.body.length <= TEXT_BYTES_MAX) row.text = got.body.toString();
  return row;
}

function pause(ms) {
  return new Promise(resolve => setTimeout(resolve, ms));
}

async function flood(fields, producer) {
  const state = { ending: false, acknowledged: [], failed: [] };
  floods.set(fields.get('producer'), state);
  state.ended = (async () => {
    for (let count = 0; !state.ending; count++) {
      try {
        const result = await producer.send(new Message(fields.get('topic'), `n${count}`));
        (result.sendStatus === 'SEND_OK' ? state.acknowledged : state.failed).push(count);
        await pause(number(fields, 'gap_ms', 1));
      } catch (failure) {
        state.failed.push(count);
        await pause(100);
      }
    }
  })();
  return true;
}

async function latency(fields, producer) {
  const spent = [];
  for (let round = 0; round < number(fields, 'rounds', 1); round++) {
    // The consumer's next pull must be waiting at the broker before the message comes.
    await pause(number(fields, 'gap_ms', 20));
    const text = `${fields.get('mark') || ''}${round}`;
    const seen = new Promise(resolve => watched.set(text, resolve));
    const started = process.hrtime.bigint();
    await producer.send(new Message(fields.get('topic'), text));
    spent.push(Number((await seen) - started) / 1000);
  }
  return spent.sort((a, b) => a - b);
}

/** The library's own producer of each process has no listener, either. */
let isCalm = false;
async function calm() {
  const hidden = await Producer.getDefaultProducer();
  if (!isCalm) hidden.on('error', () => {});
  isCalm = true;
}

async function startProducer(fields) {
  const producer = new Producer({
    ...settings(fields),
    producerGroup: fields.get('group'),
    retryTimesWhenSendFailed: number(fields, 'retries', 3),
  });
  // Without a listener an error of the background would end the process.
  producer.on('error', () => {});
  await producer.ready();
  await calm();
  producers.set(fields.get('producer'), producer);
  return true;
}

async function produce(op, fields) {
  const name = fields.get('producer');
  const producer = producers.get(name);
  switch (op) {
    case 'producer.send':
    case 'producer.ordered':
    // A promise for each send: what other clients call asynchronous.
    case 'producer.async':
      return sent(await producer.send(message(fields, bodies(fields)[0])));
    case 'producer.flood':
      return flood(fields, producer);
    case 'producer.flood_end': {
      const state = floods.get(name);
      state.ending = true;
      await state.ended;
      return { acknowledged: state.acknowledged, failed: state.failed };
    }
    case 'producer.latency':
      return latency(fields, producer);
    case 'producer.close':
      producers.delete(name);
      await producer.close();
      // Closing takes every listener away, and what goes on behind would end the process.
      producer.on('error', () => {});
      return true;
    default:
      throw new Error(`no such command: ${op}`);
  }
}

/** Accepts everything but texts that start with "fail", those after some attempts. */
function listener(fields) {
  const attempts = new Map();
  return async got => {
    const now = process.hrtime.bigint();
    const row = described(got);
    emit({ event: 'received', consumer: fields.get('consumer'), messages: [ row ] });
    const waiting = watched.get(row.text);
    if (waiting) {
      watched.delete(row.text);
      waiting(now);
    }
    if (!(row.text || '').startsWith('fail')) return undefined;
    const known = (attempts.get(row.msg_id) || 0) + 1;
    attempts.set(row.msg_id, known);
    // What a handler throws is what makes the library send a message back.
    if (known <= number(fields, 'failures', 0)) throw new Error('asked to fail');
    return undefined;
  };
}

async function startConsumer(fields) {
  const consumer = new Consumer({
    ...settings(fields),
    consumerGroup: fields.get('group'),
    isBroadcast: fields.get('model') === 'BROADCASTING',
    maxReconsumeTimes: number(fields, 'retries_max', 16),
    consumeFromWhere: ConsumeFromWhere[fields.get('start_at') || 'CONSUME_FROM_FIRST_OFFSET'],
  });
  consumer.on('error', () => {});
  const expression = fields.has('sql')
    ? { expressionType: 'SQL92', subString: fields.get('sql') }
    : fields.get('expression') || '*';
  for (const topic of fields.getAll('topic')) {
    consumer.subscribe(topic, expression, listener(fields));
  }
  await consumer.ready();
  await calm();
  consumers.set(fields.get('consumer'), consumer);
  return true;
}

async function consume(op, fields) {
  const name = fields.get('consumer');
  const consumer = consumers.get(name);
  switch (op) {
    case 'push.queues':
      return [ ...consumer.processQueueTable.values() ]
        .map(held => held.messageQueue)
        .filter(queue => queue.topic === fields.get('topic'))
        .map(queue => queue.queueId)
        .sort();
    // How far each held queue is done, whether the broker was told yet or not.
    case 'push.progress':
      return Object.fromEntries([ ...consumer.processQueueTable.values() ]
        .map(held => held.messageQueue)
        .filter(queue => queue.topic === fields.get('topic'))
        .map(queue => {
          const done = consumer._offsetStore.offsetTable.get(queue.key);
          return [ queue.queueId, done === undefined ? -1 : done ];
        }));
    case 'push.close':
      consumers.delete(name);
      await consumer.close();
      return true;
    default:
      throw new Error(`no such command: ${op}`);
  }
}

function perform(op, fields) {
  if (op === 'producer.start') return startProducer(fields);
  if (op === 'push.start') return startConsumer(fields);
  return op.startsWith('producer.') ? produce(op, fields) : consume(op, fields);
}

async function answer(fields) {
  const id = number(fields, 'id');
  try {
    emit({ id, done: await perform(fields.get('op'), fields) });
  } catch (failure) {
    const described = { type: failure.name, message: String(failure.message) };
    if (failure.code !== undefined) described.code = Number(failure.code);
    emit({ id, error: described });
  }
}

emit({ event: 'ready', pid: process.pid });
const lines = readline.createInterface({ input: process.stdin });
lines.on('line', line => answer(new URLSearchParams(line)));
lines.on('close', () => process.exit(0));
