// One run of an official MCP client: connect, list, call in several ways, and print one JSON report. Everything else goes to stderr.
// Usage: node agent.mjs '{"sdk":"v1"|"v2","mode":"legacy"|"auto"|{"pin":"2026-07-28"},"id":"…","command":[…]|"url":"…"}'
import { job, open } from './connect.mjs';

// call runs one tool the way a host does, and reports what the host would see.
async function call(client, name, args, options = {}) {
  const request = { name, arguments: args };
  try {
    const result = job.sdk === 'v1' ? await client.callTool(request, undefined, options) : await client.callTool(request, options);
    return { isError: result.isError ?? false, text: (result.content ?? []).map((c) => c.text ?? '').join(''), structured: result.structuredContent };
  } catch (e) {
    return { thrown: String(e.message ?? e), code: e.code };
  }
}

const { client, version } = await open();
const report = { version: version(), server: client.getServerVersion()?.name };
const tools = [];
for (let cursor; ;) {
  const page = await client.listTools(cursor ? { cursor } : {});
  tools.push(...page.tools);
  if (!(cursor = page.nextCursor)) break;
}
report.tools = tools.map((t) => ({ name: t.name, description: t.description, outputSchema: t.outputSchema !== undefined, annotations: t.annotations }));
report.ok = await call(client, 'probe_ask', { text: 'hello', number: '4611686018427387905' });
report.failed = await call(client, 'probe_ask', { text: 'x', plan: { code: 5 } });
report.badArguments = await call(client, 'probe_ask', { txt: 'x' });
report.unknownTool = await call(client, 'probe_asq', {});
report.progress = [];
// The test lets the backend send the next message when it has read this line.
const onprogress = (p) => { report.progress.push(p); console.error('progress'); };
report.stream = await call(client, 'probe_watch', { id: job.id, text: 's', plan: { count: 3, gate: true } }, { onprogress });
report.broken = await call(client, 'probe_watch', { text: 's', plan: { count: 2, code: 9 } });
report.collect = await call(client, 'probe_collect', { messages: [{ text: 'a' }, { text: 'b' }] });
report.chat = await call(client, 'probe_chat', { messages: [{ text: 'a' }, { text: 'b' }] });
await client.close();
console.log(JSON.stringify(report));
