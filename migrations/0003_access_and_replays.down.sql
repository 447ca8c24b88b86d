DROP TABLE replays, sessions, login_links, api_tokens;
