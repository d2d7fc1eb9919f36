// Ask the server.

/** The answer to a question about a run, as JSON; throws what the server refuses. */
export async function ask(route, query) {
  const answer = await fetch(`${route}?${new URLSearchParams(query)}`);
  const value = await answer.json();
  if (value.error) throw new Error(value.error);
  return value;
}
