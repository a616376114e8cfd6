// The network first, always; an offline page where there is none. Nothing of a person is kept.

const CACHE = "nura-{{ version|escapejs }}";
const OFFLINE = "{{ offline|escapejs }}";
const FILES = [{% for file in files %}"{{ file|escapejs }}", {% endfor %}];

self.addEventListener("install", (event) => {
  const fill = async () => {
    const cache = await caches.open(CACHE);
    await cache.addAll([OFFLINE, ...FILES]);
    await self.skipWaiting();
  };
  event.waitUntil(fill());
});

self.addEventListener("activate", (event) => {
  const begin = async () => {
    const names = await caches.keys();
    await Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name)));
    await self.registration.navigationPreload?.enable();
    await self.clients.claim();
  };
  event.waitUntil(begin());
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const isFile = FILES.includes(new URL(request.url).pathname);
  if (request.mode !== "navigate" && !isFile) return;
  const answer = async () => {
    try {
      return (await event.preloadResponse) ?? (await fetch(request));
    } catch {
      return (await caches.match(isFile ? request : OFFLINE)) ?? Response.error();
    }
  };
  event.respondWith(answer());
});
