// Asks the console for something that only a page of its own may ask for.

const pageToken = document.querySelector('meta[name=page-token]').content;

// Returns the answer; an error has the text of the refusal.
export async function ask(path, body) {
  const response = await fetch(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-console-token': pageToken },
    body: JSON.stringify(body),
  });
  const told = await response.json().catch(() => ({ error: 'Error', text: `the console answered ${response.status}` }));
  if (!response.ok) throw new Error(`${told.error}: ${told.text}`);
  return told;
}
