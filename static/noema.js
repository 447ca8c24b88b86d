// Noema in the browser: live fragments, forms that swap, keys, times. The pages work without it.
'use strict';
(() => {
  const root = document.documentElement;
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const csrf = () => one('meta[name="csrf-token"]')?.content ?? '';
  root.classList.add('js');

  // --- what people are told ------------------------------------------------------------------

  const toast = (text, quiet = false) => {
    const box = one('#toasts');
    const note = document.createElement('div');
    note.className = quiet ? 'hidden' : 'toast';
    note.textContent = text;
    if (!quiet) {
      const close = document.createElement('button');
      close.type = 'button';
      close.className = 'link';
      close.textContent = 'Dismiss';
      close.addEventListener('click', () => note.remove());
      note.append(close);
    }
    box.append(note);
    while (box.children.length > 4) box.firstElementChild.remove();
    const expire = () => (note.matches(':hover, :focus-within') ? setTimeout(expire, 2000) : note.remove());
    setTimeout(expire, quiet ? 1500 : 9000);
  };

  const confirmed = (text, verb) => new Promise((resolve) => {
    const dialog = one('#confirm');
    one('#confirm-text').textContent = text;
    one('[data-confirm-yes]').textContent = verb || 'Go on';
    dialog.returnValue = '';
    dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true });
    dialog.showModal();
  });

  // --- times: local, with UTC on hover -------------------------------------------------------

  const month = new Intl.DateTimeFormat(undefined, { month: 'short' });
  const two = (n) => String(n).padStart(2, '0');
  const thin = '\u202f';
  const span = (s) => {
    if (s >= 86400) return `${Math.floor(s / 86400)}${thin}d`;
    if (s >= 3600) return `${Math.floor(s / 3600)}${thin}h`;
    return s >= 60 ? `${Math.floor(s / 60)}${thin}min` : `${s}${thin}s`;
  };
  const stampText = (d, now) => {
    const clock = `${two(d.getHours())}:${two(d.getMinutes())}`;
    if (d.toDateString() === now.toDateString()) {
      return `${clock}:${two(d.getSeconds())}.${String(d.getMilliseconds()).padStart(3, '0')}`;
    }
    const day = `${d.getDate()} ${month.format(d)}`;
    return d.getFullYear() === now.getFullYear() ? `${day} ${clock}:${two(d.getSeconds())}` : `${day} ${d.getFullYear()} ${clock}`;
  };
  const timeText = (node, now) => {
    const at = new Date(node.dateTime);
    const gone = Math.round((now - at) / 1000);
    if (node.dataset.time === 'ago') return `${span(Math.max(0, gone))} ago`;
    if (node.dataset.time === 'due') return gone < 0 ? `in ${span(-gone)}` : 'now';
    return stampText(at, now);
  };
  const localise = (nodes) => {
    const now = new Date();
    for (const node of nodes) {
      const text = timeText(node, now);
      if (node.textContent !== text) node.textContent = text;
    }
  };
  const localiseSlowly = (nodes) => {
    localise(nodes.splice(0, 400));
    if (nodes.length) requestAnimationFrame(() => localiseSlowly(nodes));
  };
  const timesIn = (node) => (node.matches?.('time[data-time]') ? [node] : all('time[data-time]', node));
  localiseSlowly(all('time[data-time]'));
  setInterval(() => {
    if (!document.hidden) localise(all('time[data-time="ago"], time[data-time="due"]'));
  }, 1000);

  // --- putting server-rendered pieces in place -----------------------------------------------

  const parse = (html) => {
    const box = document.createElement('template');
    box.innerHTML = html;
    for (const time of all('time[data-time]', box.content)) localise([time]);
    return box.content;
  };

  // The focused thing keeps the focus when its surroundings are replaced.
  const holdFocus = (old) => {
    const had = document.activeElement;
    if (!had || had === document.body || !old.contains(had)) return () => {};
    const id = had.id;
    const href = had.getAttribute('href');
    return (fresh) => {
      const next = (id && document.getElementById(id)) || (href && all('a', fresh).find((a) => a.getAttribute('href') === href));
      next?.focus({ preventScroll: true });
    };
  };

  const replace = (old, fresh) => {
    const refocus = holdFocus(old);
    const next = fresh.firstElementChild ?? fresh;
    const drawers = all('details[open][id]', old).map((d) => d.id);
    old.replaceWith(fresh);
    for (const id of drawers) document.getElementById(id)?.setAttribute('open', '');
    refocus(next);
    return next;
  };

  const atEnd = (box) => box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  for (const box of all('[data-stick]')) box.scrollTop = box.scrollHeight;

  const find = (selector) => {
    try { return one(selector); } catch { return null; }
  };

  // A long table comes in blocks of rows, so that the browser can skip those out of sight; new rows
  // enter the first block, the oldest leave the last. What the server sent stays: a long page does
  // not shrink when the first live row arrives.
  const BLOCK = 200;
  const blocks = (list) => (list.matches('tbody') ? [...list.parentElement.tBodies] : [list]);
  const count = (list) => blocks(list).reduce((n, block) => n + block.children.length, 0);
  const caps = new Map(all('[data-cap]').map((list) => [list, Math.max(Number(list.dataset.cap), count(list))]));
  const capOf = (list) => caps.get(list) ?? (Number(list.dataset.cap) || 200);
  const trim = (list, fromEnd) => {
    if (fromEnd && list.matches('tbody') && list.children.length > 2 * BLOCK) {
      const older = document.createElement('tbody');
      older.append(...[...list.children].slice(BLOCK));
      list.after(older);
    }
    for (let over = count(list) - capOf(list); over > 0; over -= 1) {
      const last = blocks(list).at(-1);
      const victim = fromEnd ? last.lastElementChild : list.firstElementChild;
      if (!victim || victim.contains(document.activeElement)) break;
      victim.remove();
      if (last !== list && !last.children.length) last.remove();
    }
  };

  let recent = [];
  const applyAll = (pieces) => {
    const prepends = new Map();
    const seen = new Map();
    // A flood is not highlighted row by row: nobody could follow it, and it costs frames.
    const now = performance.now();
    recent = [...recent.filter((t) => now - t < 2000), ...pieces.map(() => now)].slice(-50);
    const calm = recent.length > 12;
    for (const piece of pieces) {
      const home = piece.topic ? one(`[data-live="${CSS.escape(piece.topic)}"]`) : null;
      if (piece.topic && !home) continue;
      const target = find(piece.target);
      const fresh = parse(piece.html);
      if (piece.mode === 'replace' || piece.mode === 'patch') {
        if (target) replace(target, fresh);
        else if (piece.mode === 'patch') continue;
        else if (home?.matches('ul, ol, tbody')) home.prepend(fresh);
        else if (home && 'reload' in home.dataset && !home.contains(document.activeElement)) location.reload();
        continue;
      }
      if (!target) continue;
      const id = fresh.firstElementChild?.id;
      const known = id && (seen.get(id) ?? document.getElementById(id));
      if (known?.isConnected) { replace(known, fresh); continue; }
      if (id && seen.has(id)) continue;
      if (!calm) for (const node of fresh.children) node.classList.add('fresh');
      if (target.dataset.empty) find(target.dataset.empty)?.remove();
      if (piece.mode === 'append') {
        const box = target.closest('[data-stick]');
        const follow = box && atEnd(box);
        target.append(fresh);
        trim(target, false);
        if (follow) box.scrollTop = box.scrollHeight;
      } else {
        if (id) seen.set(id, fresh.firstElementChild);
        if (!prepends.has(target)) prepends.set(target, []);
        prepends.get(target).push(fresh);
      }
    }
    for (const [target, list] of prepends) {
      const batch = document.createDocumentFragment();
      for (const fresh of list.slice(-capOf(target)).reverse()) batch.append(fresh);
      target.prepend(batch);
      trim(target, true);
    }
  };

  // --- the live stream: one per browser, held by one visible tab -----------------------------

  const live = (() => {
    const topics = () => [...new Set(all('[data-live]').map((n) => n.dataset.live))];
    const me = crypto.randomUUID?.() ?? String(Math.random());
    const indicator = one('#live');
    const pauseButton = one('[data-pause]');
    const names = { live: 'Live', catching: 'Catching up', lost: 'Lost, retrying', paused: 'Paused', ended: 'Signed out', off: 'Not live' };
    let position = document.body.dataset.position ?? '';
    let state = 'off';
    let paused = false;
    let fresh = 0;
    let queue = [];
    let held = [];
    const logs = new Set();
    let drawing = false;
    let covered = false;
    let leading = false;
    let source = null;
    let release = null;
    let asked = null;
    let retry = 0;
    let retryTimer = 0;
    let quietTimer = 0;
    let wants = new Map();
    let open = [];
    const channel = 'BroadcastChannel' in window ? new BroadcastChannel('noema') : null;
    const tell = (message) => channel?.postMessage({ ...message, from: me });

    const show = () => {
      if (!indicator) return;
      const shown = paused && state !== 'lost' && state !== 'ended' ? 'paused' : state;
      indicator.dataset.state = shown === 'ended' ? 'lost' : shown;
      const text = one('[data-live-text]', indicator);
      if (text.textContent !== names[shown]) text.textContent = names[shown];
      pauseButton.setAttribute('aria-pressed', String(paused));
      one('.pause-text', pauseButton).textContent = paused ? 'Resume' : 'Pause';
      const count = one('[data-new]', pauseButton);
      count.hidden = !paused || !fresh;
      count.textContent = `${fresh} new`;
    };
    const setState = (next) => {
      if (state === next) return;
      state = next;
      show();
      if (leading) tell({ kind: 'state', state });
    };

    const draw = () => {
      drawing = false;
      const pieces = queue;
      queue = [];
      applyAll(pieces);
      for (const log of logs) log.push(...pieces);
    };
    // A page that was asked for may be older than what the stream brought until it came: the rows
    // of that time are drawn once more over it. A row that is there already is only replaced.
    const record = () => {
      const log = [];
      logs.add(log);
      return log;
    };
    const again = (log) => {
      logs.delete(log);
      applyAll(log.filter((piece) => piece.mode !== 'replace'));
    };
    const mine = (piece) => (piece.topic ? topics().includes(piece.topic) : Boolean(find(piece.target)));
    const take = (piece) => {
      if (paused) {
        if (!mine(piece)) return;
        if (piece.mode === 'replace' || piece.mode === 'patch') held = held.filter((h) => h.mode !== piece.mode || h.target !== piece.target);
        else fresh += 1;
        held.push(piece);
        if (held.length > 3000) held.splice(0, held.length - 2000);
        show();
        return;
      }
      queue.push(piece);
      if (!drawing) { drawing = true; requestAnimationFrame(draw); }
    };
    const got = (id, piece) => {
      if (id && covered) position = id;
      take(piece);
    };

    const settle = () => {
      clearTimeout(quietTimer);
      quietTimer = setTimeout(() => { if (source?.readyState === 1) setState('live'); }, 1500);
    };
    const shut = () => {
      clearTimeout(retryTimer);
      clearTimeout(quietTimer);
      source?.close();
      source = null;
    };
    const connect = (positions) => {
      shut();
      open = [...new Set([...topics(), ...[...wants.values()].flat()])].sort();
      if (!open.length) return;
      const query = new URLSearchParams();
      for (const topic of open) query.append('live', topic);
      for (const p of new Set(positions)) if (p) query.append('after', p);
      const stream = new EventSource(`/v1/events/stream?${query}`);
      source = stream;
      setState(retry ? 'lost' : 'catching');
      stream.addEventListener('open', () => {
        retry = 0;
        covered = true;
        setState('catching');
        tell({ kind: 'covers', topics: open });
        settle();
      });
      stream.addEventListener('fragment', (event) => {
        let piece;
        try { piece = JSON.parse(event.data); } catch { return; }
        if (state === 'catching') settle();
        tell({ kind: 'fragment', id: event.lastEventId, piece });
        got(event.lastEventId, piece);
      });
      stream.addEventListener('caught-up', () => { clearTimeout(quietTimer); setState('live'); });
      stream.addEventListener('end', (event) => {
        shut();
        if (event.data.includes('session')) ended();
        else later();
      });
      stream.addEventListener('error', () => {
        if (source !== stream) return;
        setState('lost');
        clearTimeout(quietTimer);
        if (stream.readyState === EventSource.CLOSED) refused();
      });
    };
    const ended = () => {
      shut();
      setState('ended');
      toast('The session has ended. Open the sign-in page to go on.');
    };
    // An EventSource does not tell why it was refused.
    const refused = async () => {
      shut();
      const answer = await fetch('/v1/whoami').catch(() => null);
      if (!leading) return;
      if (answer?.status === 401) ended();
      else later();
    };
    const later = () => {
      setState('lost');
      shut();
      retry += 1;
      retryTimer = setTimeout(() => connect([position]), Math.min(30000, 500 * 2 ** retry) * (0.7 + Math.random() * 0.6));
    };

    const lead = () => {
      leading = true;
      wants = new Map();
      tell({ kind: 'who' });
      connect([position]);
    };
    const ask = () => tell({ kind: 'want', topics: topics(), position });
    channel?.addEventListener('message', ({ data }) => {
      if (data.kind === 'who' && !document.hidden) { leading = false; covered = false; ask(); }
      else if (data.kind === 'covers') covered = topics().every((t) => data.topics.includes(t));
      else if (data.kind === 'state' && !leading) setState(data.state);
      else if (data.kind === 'fragment' && !leading && !document.hidden) got(data.id, data.piece);
      else if (data.kind === 'bye') wants.delete(data.from);
      else if (data.kind === 'want' && leading) {
        wants.set(data.from, data.topics);
        if (data.topics.every((t) => open.includes(t)) && data.position === position) tell({ kind: 'covers', topics: open });
        else connect([position, data.position]);
        tell({ kind: 'state', state });
      }
    });

    const join = () => {
      if (!topics().length || document.hidden || asked) return;
      setState('catching');
      if (!navigator.locks || !channel) { lead(); return; }
      asked = new AbortController();
      ask();
      navigator.locks.request('noema-stream', { signal: asked.signal }, () => new Promise((done) => {
        release = done;
        lead();
      })).catch(() => {});
    };
    const leave = () => {
      tell({ kind: 'bye' });
      shut();
      asked?.abort();
      asked = null;
      release?.();
      release = null;
      leading = false;
      covered = false;
    };
    document.addEventListener('visibilitychange', () => (document.hidden ? leave() : join()));
    window.addEventListener('pagehide', leave);
    window.addEventListener('pageshow', (event) => { if (event.persisted) join(); });

    const toggle = () => {
      paused = !paused;
      if (!paused) {
        queue.push(...held);
        held = [];
        fresh = 0;
        if (!drawing) { drawing = true; requestAnimationFrame(draw); }
      }
      show();
    };
    const any = topics().length > 0;
    if (any && indicator) {
      indicator.hidden = false;
      one('#tail-tools').hidden = false;
      pauseButton.addEventListener('click', toggle);
      join();
    }
    return { any, toggle, record, again };
  })();

  // --- forms ----------------------------------------------------------------------------------

  const complaint = (doc, response) => {
    const title = one('.error-page h1', doc)?.textContent;
    const remedy = one('.error-page h1 + p', doc)?.textContent;
    return title ? `${title} ${remedy ?? ''}` : `The daemon answered ${response.status}. Nothing was changed; try again.`;
  };

  const swap = async (form, submitter) => {
    const selectors = form.dataset.swap.split(',').map((s) => s.trim());
    const method = (submitter?.getAttribute('formmethod') ?? form.method).toUpperCase();
    const fields = new URLSearchParams(new FormData(form, submitter));
    const url = new URL(submitter?.hasAttribute('formaction') ? submitter.formAction : form.action, location.href);
    const options = { method, headers: { 'X-Noema-Fragment': selectors.join(','), 'X-CSRF-Token': csrf() } };
    if (method === 'GET') url.search = fields;
    else options.body = fields;
    const targets = selectors.map(find).filter(Boolean);
    for (const t of targets) t.setAttribute('aria-busy', 'true');
    const meanwhile = live.record();
    try {
      const response = await fetch(url, options);
      if (response.redirected && new URL(response.url).pathname === '/login') { location.assign(response.url); return; }
      const text = await response.text();
      const type = response.headers.get('Content-Type') ?? '';
      if (type.includes('json')) {
        const said = JSON.parse(text);
        if (!response.ok) throw new Error(said.detail ?? said.title);
        return;
      }
      if (!/<html/i.test(text.slice(0, 400))) {
        if (!response.ok) throw new Error(text.slice(0, 300));
        if (targets[0] && text) {
          const fresh = replace(targets[0], parse(text));
          if ('show' in form.dataset) fresh.scrollIntoView({ block: 'nearest' });
        }
      } else {
        const doc = new DOMParser().parseFromString(text, 'text/html');
        const found = selectors.map((s) => [find(s), one(s, doc)]).filter(([a, b]) => a && b);
        if (!found.length) throw new Error(complaint(doc, response));
        for (const [old, next] of found) {
          const fresh = document.importNode(next, true);
          replace(old, fresh);
          localise(timesIn(fresh));
          const box = fresh.closest('[data-stick]');
          if (box) box.scrollTop = box.scrollHeight;
        }
        const problem = one('[role="alert"]', doc);
        if (problem && !response.ok) toast(problem.textContent);
      }
      if (method === 'GET') history.replaceState(null, '', url);
      if (response.ok && 'reset' in form.dataset) form.reset();
    } catch (error) {
      toast(error instanceof TypeError ? 'The daemon cannot be reached. Nothing was changed; try again.' : error.message);
    } finally {
      live.again(meanwhile);
      for (const t of all('[aria-busy]')) t.removeAttribute('aria-busy');
    }
  };

  document.addEventListener('submit', async (event) => {
    const form = event.target;
    const submitter = event.submitter;
    if (form.matches('[data-theme-form]')) { event.preventDefault(); toggleTheme(); return; }
    if (form.matches('[data-palette-form]')) { event.preventDefault(); openChosen(); return; }
    const question = submitter?.dataset.confirm ?? form.dataset.confirm;
    if (question && form.dataset.agreed !== 'yes') {
      event.preventDefault();
      if (!(await confirmed(question, submitter?.textContent.trim()))) return;
      form.dataset.agreed = 'yes';
      form.requestSubmit(submitter ?? undefined);
      delete form.dataset.agreed;
      return;
    }
    if ('clean' in form.dataset) {
      for (const field of form.elements) if (field.name && !field.value) field.disabled = true;
      setTimeout(() => { for (const field of form.elements) field.disabled = false; });
    }
    if (form.dataset.swap && !(submitter && 'full' in submitter.dataset)) {
      event.preventDefault();
      swap(form, submitter);
    }
  });
  document.addEventListener('change', (event) => {
    const form = event.target.form;
    if (form && 'auto' in form.dataset) form.requestSubmit();
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing && event.target.matches?.('[data-submit-enter]')) {
      event.preventDefault();
      event.target.form.requestSubmit();
    }
  });

  // Tuning: what differs from the version in force, and that a dry-run speaks of what it saw.
  const tuning = one('#tuning-form');
  const countChanges = () => {
    let changed = 0;
    for (const field of all('[data-saved]', tuning)) {
      const differs = Number(field.value) !== Number(field.dataset.saved.replaceAll(thin, '').replace('\u2212', '-'));
      field.classList.toggle('is-changed', differs);
      changed += differs;
    }
    one('[data-changed]').textContent = changed ? `${changed} changed` : '';
  };
  if (tuning) {
    countChanges();
    const touched = () => {
      countChanges();
      const save = one('#dry-run .save-line');
      if (!save || save.hidden) return;
      save.hidden = true;
      const note = document.createElement('p');
      note.className = 'warn-text';
      note.textContent = 'The form has changed since; dry-run it again.';
      save.after(note);
    };
    tuning.addEventListener('input', touched);
    tuning.addEventListener('reset', () => setTimeout(touched));
  }

  // --- the menu of the account ----------------------------------------------------------------

  document.addEventListener('click', (event) => {
    for (const menu of all('[data-drop][open]')) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener('keydown', (event) => {
    const menu = event.key === 'Escape' && one('[data-drop][open]');
    if (!menu) return;
    event.stopImmediatePropagation();
    menu.open = false;
    one('summary', menu).focus();
  }, true);

  // --- copy -----------------------------------------------------------------------------------

  const copy = async (text, button) => {
    try {
      await navigator.clipboard.writeText(text);
      button.classList.add('done');
      setTimeout(() => button.classList.remove('done'), 1200);
      toast('Copied', true);
    } catch {
      toast('The browser does not let this page copy. Select the text instead.');
    }
  };
  document.addEventListener('click', (event) => {
    const button = event.target.closest('.copy, [data-copy-from]');
    if (button) {
      copy(button.dataset.copyFrom ? one(button.dataset.copyFrom).textContent : button.previousElementSibling.title, button);
      return;
    }
    if (event.target.closest('[data-help]')) { one('#help').showModal(); return; }
    if (event.target.closest('[data-palette]') && !event.metaKey && !event.ctrlKey) { event.preventDefault(); openPalette(); return; }
    if (event.target instanceof HTMLDialogElement) { event.target.close(); return; }
    const row = event.target.closest('[data-row]');
    if (row && !event.target.closest('a, button, input, select, label, summary, svg') && !String(getSelection())) linkOf(row)?.click();
  });

  // --- theme ----------------------------------------------------------------------------------

  const system = matchMedia('(prefers-color-scheme: dark)');
  const toggleTheme = () => {
    const dark = (root.dataset.theme ?? (system.matches ? 'dark' : 'light')) === 'dark';
    const next = dark ? 'light' : 'dark';
    const plain = (next === 'dark') === system.matches;
    if (plain) delete root.dataset.theme;
    else root.dataset.theme = next;
    const secure = location.protocol === 'https:' ? '; secure' : '';
    document.cookie = `noema_theme=${plain ? '' : next}; path=/; samesite=lax; max-age=${plain ? 0 : 31536000}${secure}`;
  };

  // --- command palette ------------------------------------------------------------------------

  const palette = one('#palette');
  const query = one('#palette-q');
  const list = one('#palette-list');
  let looking = null;
  let waiting = 0;
  let listed = null;
  const choose = (item) => {
    for (const other of all('[role="option"]', list)) other.setAttribute('aria-selected', String(other === item));
    if (item) {
      query.setAttribute('aria-activedescendant', item.id);
      item.scrollIntoView({ block: 'nearest' });
    } else query.removeAttribute('aria-activedescendant');
  };
  const chosen = () => one('[aria-selected="true"]', list);
  // Who types and presses Enter at once means what was typed, not what is listed so far.
  const openChosen = async () => {
    if (listed !== query.value) {
      clearTimeout(waiting);
      await look();
    }
    if (listed === query.value) chosen()?.click();
  };
  const look = async () => {
    looking?.abort();
    looking = new AbortController();
    const asked = query.value;
    try {
      const url = `/palette?${new URLSearchParams({ q: asked })}`;
      const response = await fetch(url, { headers: { 'X-Noema-Fragment': '#palette-list' }, signal: looking.signal });
      if (!response.ok) throw new Error();
      list.replaceChildren(parse(await response.text()));
      choose(one('[role="option"]', list));
      listed = asked;
    } catch (error) {
      if (error.name === 'AbortError') return;
      listed = null;
      const note = document.createElement('p');
      note.className = 'palette-none';
      note.textContent = 'The daemon cannot be reached.';
      list.replaceChildren(note);
    }
  };
  const openPalette = () => {
    if (!palette || palette.open) return;
    query.value = '';
    listed = null;
    palette.showModal();
    query.focus();
    look();
  };
  query?.addEventListener('input', () => { clearTimeout(waiting); waiting = setTimeout(look, 90); });
  query?.addEventListener('keydown', (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const items = all('[role="option"]', list);
    if (items.length) choose(items[(items.indexOf(chosen()) + step + items.length) % items.length]);
  });

  // --- the graph: the list beside it as a picture ----------------------------------------------

  const drawGraph = (canvas) => {
    const items = all('[data-node]', one(canvas.dataset.nodes));
    const edges = JSON.parse(canvas.dataset.edges);
    const note = one('[data-graph-said]');
    const hint = note.textContent;
    const still = matchMedia('(prefers-reduced-motion: reduce)');
    const pen = canvas.getContext('2d');
    const near = items.map(() => new Set());
    for (const [a, b] of edges) { near[a].add(b); near[b].add(a); }
    // The same list gives the same picture: points start on a spiral, and chance plays no part.
    const points = items.map((item, i) => ({
      item,
      link: one('a', item),
      label: one('a', item).textContent.trim(),
      isEntity: item.dataset.kind === 'entity',
      group: item.dataset.group,
      size: 4 + Math.min(9, Math.sqrt(near[i].size) * 1.8),
      isCentre: 'centre' in item.dataset,
      x: 22 * Math.sqrt(i + 0.5) * Math.cos(2.399963 * i),
      y: 22 * Math.sqrt(i + 0.5) * Math.sin(2.399963 * i),
      dx: 0,
      dy: 0,
    }));
    let heat = 1;
    let colours = {};
    let view = { x: 0, y: 0, zoom: 1 };
    let moved = false;
    let over = -1;
    let chosen = points.findIndex((p) => p.isCentre);
    let asked = 0;

    const settle = () => {
      for (let i = 0; i < points.length; i += 1) {
        const p = points[i];
        for (let j = i + 1; j < points.length; j += 1) {
          const q = points[j];
          const x = p.x - q.x || 0.01;
          const y = p.y - q.y || 0.01;
          const push = Math.min(6, 1500 / (x * x + y * y)) * heat;
          const far = Math.hypot(x, y);
          p.dx += (x / far) * push; p.dy += (y / far) * push;
          q.dx -= (x / far) * push; q.dy -= (y / far) * push;
        }
        // A window is wider than high, and so is the picture.
        const pull = (p.isCentre ? 0.05 : 0.008) * heat;
        p.dx -= p.x * pull * 0.6; p.dy -= p.y * pull * 1.3;
      }
      for (const [a, b] of edges) {
        const p = points[a];
        const q = points[b];
        const x = q.x - p.x;
        const y = q.y - p.y;
        const far = Math.hypot(x, y) || 0.01;
        const pull = ((far - 74) / far) * 0.09 * heat / Math.sqrt(Math.min(near[a].size, near[b].size) || 1);
        p.dx += x * pull; p.dy += y * pull;
        q.dx -= x * pull; q.dy -= y * pull;
      }
      for (const p of points) {
        p.x += p.dx; p.y += p.dy;
        p.dx *= 0.6; p.dy *= 0.6;
      }
      heat *= 0.985;
    };

    const readColours = () => {
      const style = getComputedStyle(canvas);
      colours = { ink: style.color, line: style.borderTopColor, accent: style.outlineColor, ground: style.backgroundColor };
      for (const swatch of all('[data-group].dot')) colours[swatch.dataset.group] = getComputedStyle(swatch).backgroundColor;
    };
    const fit = () => {
      const box = canvas.getBoundingClientRect();
      const xs = points.map((p) => p.x);
      const ys = points.map((p) => p.y);
      const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
      const zoom = Math.min(2, (box.width - 90) / (right - left || 1), (box.height - 70) / (bottom - top || 1));
      view = { zoom, x: box.width / 2 - ((left + right) / 2) * zoom, y: box.height / 2 - ((top + bottom) / 2) * zoom };
    };
    const size = () => {
      const box = canvas.getBoundingClientRect();
      const scale = devicePixelRatio || 1;
      canvas.width = Math.round(box.width * scale);
      canvas.height = Math.round(box.height * scale);
      if (!moved) fit();
    };

    const at = (p) => [p.x * view.zoom + view.x, p.y * view.zoom + view.y];
    const draw = () => {
      const scale = devicePixelRatio || 1;
      const [width, height] = [canvas.width / scale, canvas.height / scale];
      const lit = over >= 0 ? over : chosen;
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      pen.clearRect(0, 0, width, height);
      for (const [a, b, kind] of edges) {
        const isLit = a === lit || b === lit;
        const [x, y] = at(points[a]);
        const [to, down] = at(points[b]);
        pen.strokeStyle = isLit ? colours.accent : colours.line;
        pen.lineWidth = isLit ? 1.6 : 1;
        pen.globalAlpha = isLit || lit < 0 ? 1 : 0.5;
        pen.setLineDash(kind === 'mentions' ? [] : kind === 'supersedes' ? [2, 3] : [5, 3]);
        pen.beginPath();
        pen.moveTo(x, y);
        pen.lineTo(to, down);
        pen.stroke();
      }
      pen.setLineDash([]);
      const dots = Math.max(0.7, Math.min(1.5, view.zoom));
      for (const [i, p] of points.entries()) {
        const [x, y] = at(p);
        const r = p.size * dots;
        pen.globalAlpha = lit < 0 || i === lit || near[lit].has(i) ? 1 : 0.4;
        pen.fillStyle = colours[p.group] ?? colours.ink;
        pen.beginPath();
        if (p.isEntity) pen.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
        else pen.arc(x, y, r, 0, 2 * Math.PI);
        pen.fill();
        if (i === lit || p.isCentre) {
          pen.strokeStyle = i === lit ? colours.accent : colours.ink;
          pen.lineWidth = 2;
          pen.stroke();
        }
      }
      // Names where there is room: of what is looked at first, then of the best connected.
      pen.globalAlpha = 1;
      pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
      pen.textBaseline = 'middle';
      const taken = [];
      const dotted = points.map((p) => at(p));
      const isTight = points.length > 40 && view.zoom < 1.5;
      const order = points.map((_, i) => i).sort((a, b) => (b === lit) - (a === lit) || (lit >= 0 ? near[lit].has(b) - near[lit].has(a) : 0) || points[b].isEntity - points[a].isEntity || near[b].size - near[a].size || a - b);
      for (const i of order) {
        const p = points[i];
        const [x, y] = at(p);
        if (x < 0 || y < 0 || x > width || y > height) continue;
        const text = p.label.length > 34 ? `${p.label.slice(0, 33)}…` : p.label;
        const wide = pen.measureText(text).width;
        const left = x + p.size * dots + 5 + wide > width ? x - p.size * dots - 5 - wide : x + p.size * dots + 5;
        const box = [left - 2, y - 8, left + wide + 2, y + 8];
        if (i !== lit) {
          if (taken.length >= 60 || (isTight && !near[i].size)) continue;
          if (taken.some((t) => box[0] < t[2] && box[2] > t[0] && box[1] < t[3] && box[3] > t[1])) continue;
          if (dotted.some(([dx, dy], j) => j !== i && dx > box[0] - 3 && dx < box[2] + 3 && dy > box[1] - 1 && dy < box[3] + 1)) continue;
        }
        taken.push(box);
        pen.globalAlpha = lit < 0 || i === lit || near[lit].has(i) ? 1 : 0.45;
        pen.strokeStyle = colours.ground;
        pen.lineWidth = 3;
        pen.lineJoin = 'round';
        pen.strokeText(text, left, y);
        pen.fillStyle = colours.ink;
        pen.fillText(text, left, y);
      }
      pen.globalAlpha = 1;
    };
    const frame = () => {
      asked = 0;
      if (heat > 0.02) {
        settle();
        settle();
        if (!moved) fit();
        again();
      }
      draw();
    };
    const again = () => { if (!asked) asked = requestAnimationFrame(frame); };

    const show = () => {
      const lit = over >= 0 ? over : chosen;
      for (const [i, p] of points.entries()) {
        p.item.classList.toggle('chosen', i === lit);
        p.item.classList.toggle('near', lit >= 0 && near[lit].has(i));
      }
      note.textContent = lit < 0 ? hint : points[lit].label;
      again();
    };
    const find = (event) => {
      const box = canvas.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      let best = -1;
      let nearest = 14;
      for (const [i, p] of points.entries()) {
        const [px, py] = at(p);
        const far = Math.hypot(px - x, py - y) - p.size;
        if (far < nearest) { nearest = far; best = i; }
      }
      return best;
    };
    const zoomBy = (factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) => {
      const zoom = Math.max(0.15, Math.min(6, view.zoom * factor));
      view = { zoom, x: x - (x - view.x) * (zoom / view.zoom), y: y - (y - view.y) * (zoom / view.zoom) };
      moved = true;
      again();
    };

    const held = new Map();
    let dragged = 0;
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      held.set(event.pointerId, [event.clientX, event.clientY]);
      if (held.size === 1) dragged = 0;
    });
    canvas.addEventListener('pointermove', (event) => {
      const last = held.get(event.pointerId);
      if (!last) {
        const found = find(event);
        if (found === over) return;
        over = found;
        canvas.classList.toggle('over', over >= 0);
        show();
        return;
      }
      const box = canvas.getBoundingClientRect();
      const others = [...held].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      if (others.length) {
        const [x, y] = others[0];
        const before = Math.hypot(last[0] - x, last[1] - y) || 1;
        zoomBy(Math.hypot(event.clientX - x, event.clientY - y) / before, x - box.left, y - box.top);
        dragged = 99;
      } else {
        dragged += Math.hypot(event.clientX - last[0], event.clientY - last[1]);
        if (dragged > 4) {
          view.x += event.clientX - last[0];
          view.y += event.clientY - last[1];
          moved = true;
          canvas.classList.add('dragging');
          again();
        }
      }
      held.set(event.pointerId, [event.clientX, event.clientY]);
    });
    const drop = (event) => {
      held.delete(event.pointerId);
      canvas.classList.remove('dragging');
    };
    canvas.addEventListener('pointercancel', drop);
    canvas.addEventListener('pointerup', (event) => {
      drop(event);
      const found = dragged > 4 ? -1 : find(event);
      if (found < 0) return;
      // A finger has no hover: its first touch says what is there, its second opens it.
      if (event.pointerType === 'touch' && chosen !== found) { chosen = found; show(); } else points[found].link.click();
    });
    canvas.addEventListener('pointerleave', () => { over = -1; canvas.classList.remove('over'); show(); });
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      zoomBy(Math.exp(-Math.max(-80, Math.min(80, event.deltaY)) * 0.004), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    for (const button of all('[data-zoom]')) {
      button.addEventListener('click', () => {
        if (button.dataset.zoom === 'fit') { moved = false; fit(); again(); } else zoomBy(button.dataset.zoom === 'in' ? 1.3 : 1 / 1.3);
      });
    }

    const list = one(canvas.dataset.nodes);
    list.addEventListener('focusin', (event) => {
      chosen = points.findIndex((p) => p.item.contains(event.target));
      show();
    });
    list.addEventListener('keydown', (event) => {
      const to = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, Home: 0, End: points.length - 1 }[event.key];
      if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const next = points[Math.max(0, Math.min(points.length - 1, to))];
      next.link.focus({ preventScroll: true });
      next.item.scrollIntoView({ block: 'nearest' });
    });

    new ResizeObserver(() => { size(); again(); }).observe(canvas);
    const recolour = () => { readColours(); again(); };
    new MutationObserver(recolour).observe(root, { attributeFilter: ['data-theme'] });
    system.addEventListener('change', recolour);
    readColours();
    size();
    if (still.matches) while (heat > 0.02) settle();
    if (!moved) fit();
    show();
  };
  const picture = one('#graph');
  if (picture) drawGraph(picture);

  // --- keys -----------------------------------------------------------------------------------

  const linkOf = (row) => one('a[href]', row);
  const keysOn = () => localStorage.getItem('noema-keys') !== 'off';
  const keySwitch = one('[data-keys-on]');
  if (keySwitch) {
    keySwitch.checked = keysOn();
    keySwitch.addEventListener('change', () => localStorage.setItem('noema-keys', keySwitch.checked ? 'on' : 'off'));
  }
  let going = 0;
  let lastRow = null;
  const step = (by) => {
    const rows = all('[data-row]').filter((row) => row.checkVisibility?.() ?? true);
    if (!rows.length) return;
    const here = rows.indexOf(document.activeElement.closest?.('[data-row]') ?? lastRow);
    const at = here < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, here + by));
    lastRow = rows[at];
    linkOf(lastRow)?.focus({ preventScroll: true });
    lastRow.scrollIntoView({ block: 'nearest' });
  };
  const goTo = (key) => {
    const link = one(`[data-key="${CSS.escape(key)}"]`);
    const href = link?.getAttribute('href') ?? (key === 'c' ? document.body.dataset.goC : null);
    if (href) location.assign(href);
  };
  const back = () => {
    const parents = all('.crumbs a');
    if (document.referrer.startsWith(location.origin) && history.length > 1) history.back();
    else if (parents.length) location.assign(parents.at(-1).href);
  };
  const follow = (selector) => one(selector)?.click();
  const actions = {
    '?': () => one('#help')?.showModal(),
    '/': openPalette,
    j: () => step(1),
    k: () => step(-1),
    t: toggleTheme,
    g: () => { going = Date.now(); },
    '[': () => follow('[data-older]'),
    ']': () => follow('[data-newer]'),
    Escape: back,
  };
  document.addEventListener('keydown', (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === 'k') {
      event.preventDefault();
      openPalette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
    const where = event.target;
    const typing = where.closest?.('input, textarea, select, [contenteditable]');
    if (one('dialog[open]')) return;
    if (typing) {
      if (event.key === 'Escape') where.blur();
      return;
    }
    if (event.key !== 'Escape' && !keysOn()) return;
    if (event.key === ' ') {
      if (!live.any || where.closest?.('button, summary, [role="option"]')) return;
      event.preventDefault();
      live.toggle();
      return;
    }
    if (going && Date.now() - going < 1500 && /^[a-z]$/.test(event.key)) {
      going = 0;
      event.preventDefault();
      goTo(event.key);
      return;
    }
    going = 0;
    const act = actions[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
})();
