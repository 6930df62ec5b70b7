// A client written with the official JavaScript SDK: client.mjs jsonrpc|rest URL [CHECK …]
//
// Talks to an agent of these tests at URL, directly or through a gateway, and prints one line of JSON for each promise that it checks:
// {"check": NAME, "ok": true} or {"check": NAME, "ok": false, "why": …}. Without names it checks everything that is in EVERY, side by side.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

import { Role, TaskState } from '@a2a-js/sdk';
import {
  ClientFactory,
  JsonRpcTransportFactory,
  RestTransportFactory,
  ServiceParameters,
  withA2AExtensions,
} from '@a2a-js/sdk/client';
import {
  A2AError,
  PushNotificationNotSupportedError,
  TaskNotCancelableError,
  TaskNotFoundError,
  UnsupportedOperationError,
} from '@a2a-js/sdk/errors';

import { EXTENSION, OFFER, dataPart, rawPart, textPart, urlPart } from './parts.mjs';

const BINDINGS = { jsonrpc: ['JSONRPC', JsonRpcTransportFactory], rest: ['HTTP+JSON', RestTransportFactory] };
const COMPLETED = TaskState.TASK_STATE_COMPLETED;
const INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED;
const ENDED = [COMPLETED, TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_CANCELED, TaskState.TASK_STATE_REJECTED];
const NOBODY = 'no-such-task';

setTimeout(() => process.exit(3), 100_000).unref();
const [, , name, url, ...names] = process.argv;
const [binding, Transport] = BINDINGS[name];
const client = await new ClientFactory({ transports: [new Transport()] }).createFromUrl(url);

// Each function is one promise.
const checks = {
  async card() {
    const card = await client.getAgentCard();
    assert.equal(card.name, 'clerk');
    assert.equal(card.capabilities.streaming, true);
    assert.deepEqual(card.skills.map((skill) => skill.id), ['do']);
    assert.ok(card.supportedInterfaces.some((i) => i.protocolBinding === binding), show(card.supportedInterfaces));
    for (const { url: to } of card.supportedInterfaces) assert.equal(new URL(to).origin, new URL(url).origin);
  },

  async send() {
    const done = await task('hello');
    assert.equal(done.status.state, COMPLETED, show(done));
    assert.equal(textOf(done), 'echo: hello', show(done));
    assert.ok(done.id && done.contextId, show(done));
  },

  async message() {
    const result = await client.sendMessage(request('say good morning'));
    assert.equal(result.parts?.[0].content.value, 'good morning', show(result));
    const events = await stream('say good morning');
    let said = events[0].payload.value;
    if (events.length > 1) {
      // Who is in between may have introduced the task before the agent spoke. Then the message is its last word.
      assert.deepEqual([events[0].payload.$case, stateOf(events.at(-1))], ['task', COMPLETED], show(events));
      said = events.at(-1).payload.value.status.message;
    }
    assert.equal(said.parts?.[0].content.value, 'good morning', show(events));
  },

  async stream() {
    const events = await stream('count 20');
    assert.equal(events[0].payload.$case, 'task', show(events[0]));
    const pieces = ofCase(events, 'artifactUpdate').map((update) => update.artifact.parts[0].content.value);
    assert.deepEqual(pieces, Array.from({ length: 20 }, (_, n) => `${n} `));
    assert.deepEqual(events.map(stateOf).filter((state) => ENDED.includes(state)), [COMPLETED], show(events));
    assert.equal(stateOf(events.at(-1)), COMPLETED, show(events.at(-1)));
    const ids = new Set(events.map(taskId));
    assert.equal(ids.size, 1, show([...ids]));
    assert.equal(textOf(await get([...ids][0])), pieces.join(''));
  },

  async return_immediately() {
    const accepted = await task('slow 0.5', { atOnce: true });
    assert.ok(!ENDED.includes(accepted.status.state), show(accepted));
    const done = await ended(accepted);
    assert.equal(done.status.state, COMPLETED, show(done));
    assert.equal(textOf(done), 'slow but done', show(done));
  },

  async get() {
    const done = await task('remember me');
    const again = await get(done.id);
    assert.deepEqual([again.id, again.contextId], [done.id, done.contextId]);
    assert.equal(again.status.state, COMPLETED, show(again));
    assert.equal(textOf(again), 'echo: remember me', show(again));
    assert.ok(again.history.some((m) => m.parts[0].content.value === 'remember me'), show(again));
    const short = await client.getTask({ tenant: '', id: done.id, historyLength: 0 });
    assert.deepEqual(short.history, [], show(short));
  },

  async list() {
    const contextId = randomUUID();
    const made = [];
    for (const text of ['a', 'b', 'book', 'c', 'd']) made.push(await task(text, { contextId }));
    const list = (more) =>
      client.listTasks({ tenant: '', contextId, status: TaskState.TASK_STATE_UNSPECIFIED, pageToken: '', ...more });
    const listed = [];
    for (let pageToken = '', pages = 0; pages < 9; pages++) {
      const page = await list({ pageSize: 2, pageToken });
      assert.ok(page.tasks.length <= 2 && page.totalSize === made.length, show(page));
      listed.push(...page.tasks);
      if (!page.nextPageToken) break;
      pageToken = page.nextPageToken;
    }
    assert.deepEqual(listed.map((t) => t.id), made.map((t) => t.id).reverse(), `not the newest first: ${show(listed)}`);
    const times = listed.map((t) => Date.parse(t.status.timestamp));
    assert.deepEqual(times, [...times].sort((a, b) => b - a));
    assert.ok(listed.every((t) => t.artifacts.length === 0), show(listed));

    for (const [minutes, newer] of [[-10, made.length], [10, 0]]) {
      const page = await list({ statusTimestampAfter: new Date(times[0] + minutes * 60_000).toISOString() });
      assert.deepEqual([page.tasks.length, page.totalSize], [newer, newer], show(page));
    }
    const waiting = await list({ status: INPUT_REQUIRED });
    assert.deepEqual(waiting.tasks.map((t) => t.id), [made[2].id], show(waiting));
    assert.equal(waiting.totalSize, 1, show(waiting));
    const whole = await list({ status: COMPLETED, includeArtifacts: true });
    assert.ok(whole.tasks.length === 4 && whole.tasks.every((t) => t.artifacts.length > 0), show(whole));
    assert.equal(whole.nextPageToken, '', show(whole));
    const nobody = await list({ contextId: randomUUID() });
    assert.deepEqual([nobody.tasks, nobody.totalSize], [[], 0], show(nobody));
  },

  async subscribe() {
    const accepted = await task('slow 30', { atOnce: true });
    const events = [];
    for await (const event of client.resubscribeTask({ tenant: '', id: accepted.id })) {
      events.push(event);
      if (events.length > 1) continue;
      assert.deepEqual([event.payload.$case, taskId(event)], ['task', accepted.id], show(event));
      await cancel(accepted.id);
    }
    assert.equal(stateOf(events.at(-1)), TaskState.TASK_STATE_CANCELED, show(events));
  },

  async subscribe_input_required() {
    const asked = await task('book');
    const events = [];
    for await (const event of client.resubscribeTask({ tenant: '', id: asked.id })) {
      events.push(event);
      if (events.length > 1) continue;
      assert.equal(event.payload.$case, 'task', show(event));
      assert.deepEqual([taskId(event), stateOf(event)], [asked.id, INPUT_REQUIRED], show(event));
      await task('Monday', { taskId: asked.id });
    }
    assert.equal(stateOf(events.at(-1)), COMPLETED, show(events));
  },

  async cancel() {
    const accepted = await task('slow 30', { atOnce: true });
    await until(accepted, (t) => t.status.state === TaskState.TASK_STATE_WORKING);
    const canceled = await cancel(accepted.id);
    assert.equal(canceled.id, accepted.id, show(canceled));
    const end = await ended(accepted);
    assert.equal(end.status.state, TaskState.TASK_STATE_CANCELED, show(end));
    const done = await task('hello');
    await raises(TaskNotCancelableError, () => cancel(done.id));
  },

  async input_required() {
    const asked = await task('book');
    assert.equal(asked.status.state, INPUT_REQUIRED, show(asked));
    assert.equal(asked.status.message.parts[0].content.value, 'which day?', show(asked));
    const done = await task('Monday', { taskId: asked.id });
    assert.deepEqual([done.id, done.contextId], [asked.id, asked.contextId], show(done));
    assert.equal(done.status.state, COMPLETED, show(done));
    assert.equal(textOf(done), 'booked for Monday', show(done));
  },

  async input_required_stream() {
    const asked = await stream('book');
    assert.equal(asked[0].payload.$case, 'task', show(asked));
    assert.equal(stateOf(asked.at(-1)), INPUT_REQUIRED, show(asked));
    const done = await stream('Monday', { taskId: taskId(asked[0]) });
    assert.equal(stateOf(done.at(-1)), COMPLETED, show(done));
    assert.deepEqual([...new Set(done.map(taskId))], [taskId(asked[0])], show(done));
  },

  async follow_up_in_context() {
    const first = await task('hello');
    const second = await task('hello again', { contextId: first.contextId });
    assert.equal(second.contextId, first.contextId);
    assert.notEqual(second.id, first.id);
    const own = `context-${randomUUID()}`;
    assert.equal((await task('hello', { contextId: own })).contextId, own);
  },

  async failed() {
    const failed = await task('fail');
    assert.equal(failed.status.state, TaskState.TASK_STATE_FAILED, show(failed));
    assert.equal(failed.status.message.parts[0].content.value, 'it broke', show(failed));
  },

  async data_part() {
    assert.deepEqual(dataOf(await task('data')), [OFFER]);
    const more = [1, null, { a: 2 }];
    const back = await task([textPart('mirror'), dataPart(OFFER), dataPart(more)]);
    assert.deepEqual(dataOf(back), [OFFER, more], show(back));
  },

  async file_part() {
    const [raw, link] = (await task('file')).artifacts[0].parts;
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
    assert.deepEqual([raw.content.$case, raw.filename, raw.mediaType], ['raw', 'room.png', 'image/png'], show(raw));
    assert.ok(bytes.equals(raw.content.value), show(raw));
    assert.deepEqual(link.content, { $case: 'url', value: 'https://example.com/menu.pdf' });
    assert.deepEqual([link.filename, link.mediaType], ['menu.pdf', 'application/pdf'], show(link));
    const sent = [
      rawPart(Buffer.alloc(1000, '00ff', 'hex'), 'application/octet-stream', 'a.bin'),
      urlPart('https://example.com/?a=b&c=%20', 'text/html', 'b.html'),
    ];
    const back = (await task([textPart('mirror'), ...sent])).artifacts[0].parts;
    const plain = (parts) => parts.map((p) => [p.content.$case, p.content.value.toString('hex'), p.filename, p.mediaType]);
    assert.deepEqual(plain(back), plain(sent));
  },

  async big_artifact() {
    assert.equal(textOf(await task('big 1024')).length, 1 << 20);
    const updates = ofCase(await stream('big 1024'), 'artifactUpdate');
    assert.deepEqual(updates.map((update) => update.artifact.parts[0].content.value.length), [1 << 20]);
  },

  async ids() {
    const sent = request('hello');
    const first = await client.sendMessage(sent);
    const other = await task('hello');
    assert.ok(first.id !== other.id && first.contextId !== other.contextId, show([first, other]));
    const again = await get(first.id);
    assert.ok(again.history.some((m) => m.messageId === sent.message.messageId), show(again));
  },

  async extensions() {
    const serviceParameters = ServiceParameters.create(withA2AExtensions(EXTENSION));
    const asked = await client.sendMessage(request('extensions'), { serviceParameters });
    assert.equal(textOf(asked), EXTENSION, show(asked));
    assert.equal(textOf(await task('extensions')), '');
  },

  async push_config() {
    const { id: taskId } = await task('hello');
    const one = { tenant: '', taskId, id: 'mine' };
    const config = { ...one, url: 'https://example.com/hook', token: '', authentication: undefined };
    for (const call of [
      () => client.createTaskPushNotificationConfig(config),
      () => client.getTaskPushNotificationConfig(one),
      () => client.listTaskPushNotificationConfig({ tenant: '', taskId, pageSize: 10, pageToken: '' }),
      () => client.deleteTaskPushNotificationConfig(one),
    ]) {
      await raises(PushNotificationNotSupportedError, call);
    }
  },

  async unknown_task() {
    await raises(TaskNotFoundError, () => get(NOBODY));
    await raises(TaskNotFoundError, () => task('hello', { taskId: NOBODY }));
    await raises(TaskNotFoundError, () => cancel(NOBODY));
    await raises(TaskNotFoundError, () => stream('hello', { taskId: NOBODY }));
    await raises(TaskNotFoundError, () => subscribe(NOBODY));
  },

  async terminal_task() {
    const { id } = await task('hello');
    await raises(UnsupportedOperationError, () => task('hello again', { taskId: id }));
    await raises(UnsupportedOperationError, () => stream('hello again', { taskId: id }));
    await raises(UnsupportedOperationError, () => subscribe(id));
  },
};

// An agent that dies in the middle. Without a gateway this ends in an error of the network, and nobody knows the task.
async function gone() {
  const events = await stream('die');
  assert.equal(events[0].payload.$case, 'task', show(events));
  assert.equal(stateOf(events.at(-1)), TaskState.TASK_STATE_FAILED, show(events));
  const why = events.at(-1).payload.value.status.message.parts[0].content.value;
  assert.match(why, /clerk/);
  const again = await get(taskId(events[0]));
  assert.equal(again.status.state, TaskState.TASK_STATE_FAILED, show(again));
  assert.equal(again.status.message.parts[0].content.value, why);
  await assert.rejects(task('hello'), (error) => {
    assert.ok(error instanceof A2AError, error);
    assert.match(error.message, /Nothing listens at the agent's address/);
    return true;
  });
}

// The tenant on the agent's card is to be echoed, by a client or by who is in between.
async function tenant() {
  assert.equal(textOf(await task('tenant')), 'acme');
  assert.equal(textOf(await get(taskId((await stream('tenant'))[0]))), 'acme');
}

const EVERY = Object.keys(checks);
Object.assign(checks, { gone, tenant });

function request(what, { taskId = '', contextId = '', atOnce = false } = {}) {
  return {
    tenant: '',
    message: {
      messageId: randomUUID(),
      role: Role.ROLE_USER,
      parts: typeof what === 'string' ? [textPart(what)] : what,
      contextId,
      taskId,
      metadata: undefined,
      extensions: [],
      referenceTaskIds: [],
    },
    configuration: { acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately: atOnce },
    metadata: undefined,
  };
}

async function task(what, more) {
  const result = await client.sendMessage(request(what, more));
  assert.ok(result.status, `no task: ${show(result)}`);
  return result;
}

const cancel = (id) => client.cancelTask({ tenant: '', id, metadata: undefined });
const get = (id) => client.getTask({ tenant: '', id });
const stream = (what, more) => collect(client.sendMessageStream(request(what, more)));
const subscribe = (id) => collect(client.resubscribeTask({ tenant: '', id }));
const ended = (task) => until(task, (t) => ENDED.includes(t.status.state));

async function collect(events) {
  const all = [];
  for await (const event of events) all.push(event);
  return all;
}

async function until(task, there) {
  for (let n = 0; n < 400; n++) {
    task = await get(task.id);
    if (there(task)) return task;
    await sleep(50);
  }
  throw new Error(`not within 20 s: ${show(task)}`);
}

const partsOf = (task) => task.artifacts.flatMap((artifact) => artifact.parts);
const textOf = (task) => partsOf(task).map((part) => part.content.value).join('');
const dataOf = (task) => partsOf(task).map((part) => part.content.value);
const ofCase = (events, kind) => events.filter((e) => e.payload.$case === kind).map((e) => e.payload.value);
const stateOf = (event) => event.payload.value.status?.state;
const taskId = ({ payload: { $case, value } }) => ($case === 'task' ? value.id : value.taskId);
const show = (value) => JSON.stringify(value)?.slice(0, 500);

async function raises(kind, call) {
  let result;
  try {
    result = await call();
  } catch (error) {
    if (error instanceof kind) return;
    throw error;
  }
  throw new Error(`no ${kind.name}, but ${show(result)}`);
}

async function judge(check) {
  const verdict = { check, ok: true };
  try {
    const late = sleep(40_000, null, { ref: false }).then(() => Promise.reject(new Error('not within 40 s')));
    await Promise.race([checks[check](), late]);
  } catch (error) {
    const lines = [...String(error.stack).matchAll(/client\.mjs:(\d+)/g)].map((found) => Number(found[1]));
    Object.assign(verdict, { ok: false, why: `${error.name}: ${error.message}`.slice(0, 700), lines });
  }
  console.log(JSON.stringify(verdict));
}

await Promise.all((names.length ? names : EVERY).map(judge));
process.exit(0);
