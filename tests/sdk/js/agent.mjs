// An agent written with the official JavaScript SDK: agent.mjs [BINDING …]
//
// Serves A2A 1.0 over the bindings named, in this order on its card (jsonrpc at /, rest below /rest; both without names). It prints
// `listening on URL`, and ends when its standard input does. An argument TENANT= puts a tenant on the card. What the words of a message mean is written in ../python/agent.py.

import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

import express from 'express';
import { Role, TaskState } from '@a2a-js/sdk';
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } from '@a2a-js/sdk/server/express';

import { EXTENSION, OFFER, dataPart, rawPart, textPart, urlPart } from './parts.mjs';

class Clerk {
  running = new Map();

  async execute(context, bus) {
    const { taskId, contextId, userMessage } = context;
    const text = userMessage.parts[0].content.value;
    const [word, rest] = [text.split(' ')[0], text.slice(text.indexOf(' ') + 1)];
    const says = (words, task) => ({
      messageId: randomUUID(),
      role: Role.ROLE_AGENT,
      parts: [textPart(words)],
      contextId,
      taskId: task ?? '',
      metadata: undefined,
      extensions: [],
      referenceTaskIds: [],
    });
    if (word === 'say') {
      bus.publish(AgentEvent.message(says(rest)));
      bus.finished();
      return;
    }
    if (word === 'quiet') await sleep(Number(rest) * 1000);

    const status = (state, message) => ({ state, message, timestamp: new Date().toISOString() });
    const becomes = (state, message) =>
      bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(state, message), metadata: undefined }));
    const artifact = (parts, more = {}) => {
      const { artifactId = randomUUID(), append = false, lastChunk = true } = more;
      const whole = { artifactId, name: '', description: '', parts, metadata: undefined, extensions: [] };
      bus.publish(
        AgentEvent.artifactUpdate({ taskId, contextId, artifact: whole, append, lastChunk, metadata: undefined }),
      );
    };

    bus.publish(
      AgentEvent.task(
        context.task ?? {
          id: taskId,
          contextId,
          status: status(TaskState.TASK_STATE_SUBMITTED),
          artifacts: [],
          history: [userMessage],
          metadata: undefined,
        },
      ),
    );
    becomes(TaskState.TASK_STATE_WORKING);
    if (context.task) {
      artifact([textPart(`booked for ${text}`)]);
    } else if (word === 'fail') {
      becomes(TaskState.TASK_STATE_FAILED, says('it broke', taskId));
      bus.finished();
      return;
    } else if (word === 'slow') {
      const cut = new AbortController();
      this.running.set(taskId, { cut, contextId });
      const canceled = await sleep(Number(rest) * 1000, false, { signal: cut.signal }).catch(() => true);
      this.running.delete(taskId);
      if (canceled) return;
      artifact([textPart('slow but done')]);
    } else if (word === 'die') {
      await sleep(200);
      process.exit(1);
    } else if (word === 'quiet') {
      artifact([textPart('quiet but done')]);
    } else if (word === 'book') {
      becomes(TaskState.TASK_STATE_INPUT_REQUIRED, says('which day?', taskId));
      return;
    } else if (word === 'data') {
      artifact([dataPart(OFFER)]);
    } else if (word === 'file') {
      artifact([
        rawPart(Buffer.from(Array.from({ length: 256 }, (_, n) => n)), 'image/png', 'room.png'),
        urlPart('https://example.com/menu.pdf', 'application/pdf', 'menu.pdf'),
      ]);
    } else if (word === 'mirror') {
      artifact(userMessage.parts.slice(1));
    } else if (word === 'extensions') {
      artifact([textPart((context.context.requestedExtensions ?? []).join(','))]);
    } else if (word === 'tenant') {
      artifact([textPart(context.context.tenant ?? '')]);
    } else if (word === 'count') {
      const pieces = Number(rest);
      for (let n = 0; n < pieces; n++) {
        artifact([textPart(`${n} `)], { artifactId: 'count', append: n > 0, lastChunk: n === pieces - 1 });
      }
    } else if (word === 'big') {
      artifact([textPart('0123456789abcdef'.repeat(64 * Number(rest)))]);
    } else {
      artifact([textPart(`echo: ${text}`)]);
    }
    becomes(TaskState.TASK_STATE_COMPLETED);
    bus.finished();
  }

  async cancelTask(taskId, bus) {
    const { cut, contextId } = this.running.get(taskId) ?? {};
    cut?.abort();
    const status = { state: TaskState.TASK_STATE_CANCELED, message: undefined, timestamp: new Date().toISOString() };
    bus.publish(AgentEvent.statusUpdate({ taskId, contextId: contextId ?? '', status, metadata: undefined }));
    bus.finished();
  }
}

function card(url, bindings, tenant) {
  const served = {
    jsonrpc: { url, protocolBinding: 'JSONRPC', tenant, protocolVersion: '1.0' },
    rest: { url: `${url}rest`, protocolBinding: 'HTTP+JSON', tenant, protocolVersion: '1.0' },
  };
  return {
    name: 'clerk',
    description: 'Does what the message says.',
    version: '1.0.0',
    provider: undefined,
    supportedInterfaces: bindings.map((binding) => served[binding]),
    capabilities: {
      streaming: true,
      pushNotifications: false,
      extendedAgentCard: false,
      extensions: [{ uri: EXTENSION, description: '', required: false, params: undefined }],
    },
    securitySchemes: {},
    securityRequirements: [],
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain'],
    skills: [
      {
        id: 'do',
        name: 'do',
        description: 'Does what it is told.',
        tags: ['test'],
        examples: [],
        inputModes: [],
        outputModes: [],
        securityRequirements: [],
      },
    ],
    signatures: [],
  };
}

const named = process.argv.slice(2).filter((argument) => argument in { jsonrpc: 0, rest: 0 });
const bindings = named.length ? named : ['jsonrpc', 'rest'];
const tenant = process.argv.find((argument) => argument.startsWith('TENANT='))?.slice('TENANT='.length) ?? '';
const app = express();
const server = app.listen(0, '127.0.0.1', () => {
  const url = `http://127.0.0.1:${server.address().port}/`;
  const about = card(url, bindings, tenant);
  const requestHandler = new DefaultRequestHandler(about, new InMemoryTaskStore(), new Clerk());
  const userBuilder = UserBuilder.noAuthentication;
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
  if (bindings.includes('rest')) app.use('/rest', restHandler({ requestHandler, userBuilder }));
  if (bindings.includes('jsonrpc')) app.use('/', jsonRpcHandler({ requestHandler, userBuilder }));
  console.log(`listening on ${url}`);
});
process.stdin.on('end', () => process.exit(0)).resume();
