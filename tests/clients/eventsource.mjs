// Follows a stream of log entries with an EventSource until it has so many, and prints each event as JSON, one a line.
import { EventSource } from 'eventsource';

const [url, count] = process.argv.slice(2);
const print = (o) => console.log(JSON.stringify(o));
let seen = 0;

const source = new EventSource(url);
source.onopen = () => print({ event: 'open' });
source.onmessage = (e) => {
  print({ event: 'message', id: e.lastEventId, text: JSON.parse(e.data).entry.message });
  if (++seen === Number(count)) source.close();
};
source.addEventListener('server_draining', () => print({ event: 'server_draining' }));
source.addEventListener('error', (e) => {
  print({ event: 'error', data: e.data, message: e.message });
  if (source.readyState === EventSource.CLOSED) process.exit(1); // it will not come back
});
