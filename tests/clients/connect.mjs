// The official MCP clients, opened as a job says.
export const job = JSON.parse(process.argv[2]);
const info = { name: 'toolway-tests', version: '1' };

export async function open() {
  let Client, Stdio, HTTP, options = {};
  if (job.sdk === 'v1') {
    ({ Client } = await import('@modelcontextprotocol/sdk/client/index.js'));
    ({ StdioClientTransport: Stdio } = await import('@modelcontextprotocol/sdk/client/stdio.js'));
    ({ StreamableHTTPClientTransport: HTTP } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js'));
  } else {
    ({ Client, StreamableHTTPClientTransport: HTTP } = await import('@modelcontextprotocol/client'));
    ({ StdioClientTransport: Stdio } = await import('@modelcontextprotocol/client/stdio'));
    options.versionNegotiation = { mode: job.mode };
  }
  const transport = job.url ? new HTTP(new URL(job.url)) : new Stdio({ command: job.command[0], args: job.command.slice(1), stderr: 'inherit' });
  // The v1 client does not tell which version was agreed upon, but tells its transport.
  let agreed;
  const set = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (v) => { agreed = v; set?.(v); };
  const client = new Client(info, options);
  await client.connect(transport);
  return { client, version: () => client.getNegotiatedProtocolVersion?.() ?? agreed };
}

