DROP TABLE budget_reservations, budget_windows, budgets, llm_calls, prompt_uses, prompts, llm_roles,
    llm_providers, secrets;
