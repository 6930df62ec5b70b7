// The parts of messages and artifacts, in the shape that the SDK wants, and what the agents of these tests have to tell.

export const EXTENSION = 'https://example.com/extensions/politeness/v1';

export const OFFER = {
  rooms: [101, 102],
  price: 12.5,
  below: -3,
  note: null,
  free: false,
  name: 'Zimmer „7“ \u2603',
  nested: { deep: [{ a: null }, [1, [2.25]], {}, []] },
};

const part = (content, mediaType = '', filename = '') => ({ content, metadata: undefined, filename, mediaType });

export const textPart = (text) => part({ $case: 'text', value: text }, 'text/plain');
export const dataPart = (data) => part({ $case: 'data', value: data }, 'application/json');
export const rawPart = (raw, mediaType, filename) => part({ $case: 'raw', value: raw }, mediaType, filename);
export const urlPart = (url, mediaType, filename) => part({ $case: 'url', value: url }, mediaType, filename);
