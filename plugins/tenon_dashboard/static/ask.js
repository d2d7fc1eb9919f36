// Requests to the server.

/** Return the JSON response to a request about a run; throw the error that the server responds with. */
export async function ask(route, query) {
  const answer = await fetch(`${route}?${new URLSearchParams(query)}`);
  const value = await answer.json();
  if (value.error) throw new Error(value.error);
  return value;
}
