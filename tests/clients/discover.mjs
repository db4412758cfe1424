// What an official MCP client does when a server asks who calls: it finds the authorization server by the 401, and sends its person there.
// Usage: node discover.mjs URL. It prints where it would send the person, as JSON.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';

const report = {};
const authProvider = {
  get redirectUrl() { return 'http://127.0.0.1:9/callback'; },
  get clientMetadata() { return { redirect_uris: ['http://127.0.0.1:9/callback'], client_name: 'toolway-tests' }; },
  clientInformation: () => ({ client_id: 'mesh' }),
  tokens: () => undefined,
  saveTokens: () => {},
  codeVerifier: () => 'x',
  saveCodeVerifier: () => {},
  redirectToAuthorization: (url) => { report.url = url.href; },
};
const client = new Client({ name: 'toolway-tests', version: '1' });
try {
  await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2]), { authProvider }));
  report.connected = true;
} catch (e) {
  report.unauthorized = e instanceof UnauthorizedError;
  report.error = String(e.message ?? e);
}
console.log(JSON.stringify(report));
