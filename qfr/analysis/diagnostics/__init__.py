"""How an agent's calls went, beyond whether it succeeded (Jang 2026): pure functions over tables in memory.

A flat score can hide a damaged process. Everything here follows from the episode and call tables of finished
cells (`divergence` alone reads transcripts); the task is the unit that is resampled, never the call.

- `log`: episodes and calls of one agent, joined and checked
- `channels`: error rates per channel and behaviour, and their amplification against a reference preset
- `novelty`: whether another preset fails in new ways or in the same ways more often
- `budget`: success under a shrinking error budget, recounted; the gap between two presets; and the recount
  beside a real rerun
- `recovery`: what follows an error, and what it costs
- `margins`: how narrow the decisions of right and wrong turns were, and what another preset loses
- `screen`: whether the reference alone foretells it
- `length`: turns and tokens per episode
- `divergence`: where two episodes of one task and site part
- `resampled`: many quantities with one draw
"""
