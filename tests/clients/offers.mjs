// One run of an official MCP client over resources, prompts and completion, with one JSON report. Usage: as agent.mjs.
import { open } from './connect.mjs';

const { client, version } = await open();
const refused = async (f) => {
  try {
    await f();
    return 'nothing thrown';
  } catch (e) {
    return `${e.code} ${e.message ?? e}`;
  }
};
const { tools, prompts, resources, completions } = client.getServerCapabilities();
const report = { version: version(), capabilities: { tools, prompts, resources, completions } };
report.resources = (await client.listResources()).resources.map((r) => r.uri);
report.templates = (await client.listResourceTemplates()).resourceTemplates.map((r) => r.uriTemplate);
report.text = (await client.readResource({ uri: 'test://static-text' })).contents;
report.binary = (await client.readResource({ uri: 'test://static-binary' })).contents;
report.template = (await client.readResource({ uri: 'test://template/a%20b/data' })).contents;
report.missing = await refused(() => client.readResource({ uri: 'test://nothing' }));
report.prompts = (await client.listPrompts()).prompts.map((p) => p.name);
const prompt = (name, args) => client.getPrompt({ name, arguments: args });
report.prompt = (await prompt('test_prompt_with_arguments', { arg1: 'x', arg2: '{arg1}' })).messages;
report.embedded = (await prompt('test_prompt_with_embedded_resource', { resourceUri: 'test://static-text' })).messages;
report.image = (await prompt('test_prompt_with_image')).messages;
report.lacking = await refused(() => prompt('test_prompt_with_arguments', { arg1: 'x' }));
report.completion = (await client.complete({ ref: { type: 'ref/prompt', name: 'test_prompt_with_arguments' }, argument: { name: 'arg1', value: 'x' } })).completion;
await client.close();
console.log(JSON.stringify(report));
