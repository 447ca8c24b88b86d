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
