model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

loss mine {
  a = exp(logp * exp(logp * exp(logp * exp(logp * exp(logp)))))
  b = exp(a * exp(a * exp(a * exp(a * exp(a)))))
  c = exp(b * exp(b * exp(b * exp(b * exp(b)))))
  d = exp(c * exp(c * exp(c * exp(c * exp(c)))))
  e = exp(d * exp(d * exp(d * exp(d * exp(d)))))
  f = exp(e * exp(e * exp(e * exp(e * exp(e)))))
  g = exp(f * exp(f * exp(f * exp(f * exp(f)))))
  h = exp(g * exp(g * exp(g * exp(g * exp(g)))))
  i = exp(h * exp(h * exp(h * exp(h * exp(h)))))
  j = exp(i * exp(i * exp(i * exp(i * exp(i)))))
  k = exp(j * exp(j * exp(j * exp(j * exp(j)))))
  l = exp(k * exp(k * exp(k * exp(k * exp(k)))))
  m = exp(l * exp(l * exp(l * exp(l * exp(l)))))
  n = exp(m * exp(m * exp(m * exp(m * exp(m)))))
  o = exp(n * exp(n * exp(n * exp(n * exp(n)))))
  p = exp(o * exp(o * exp(o * exp(o * exp(o)))))
  q = exp(p * exp(p * exp(p * exp(p * exp(p)))))
  r = exp(q * exp(q * exp(q * exp(q * exp(q)))))
  s = exp(r * exp(r * exp(r * exp(r * exp(r)))))
  t = exp(s * exp(s * exp(s * exp(s * exp(s)))))
  u = exp(t * exp(t * exp(t * exp(t * exp(t)))))
  v = exp(u * exp(u * exp(u * exp(u * exp(u)))))
  w = exp(v * exp(v * exp(v * exp(v * exp(v)))))
  x = exp(w * exp(w * exp(w * exp(w * exp(w)))))
  token = x * adv
}

train main {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = mine
  optimizer = adam(1e-3)
  steps     = 50
}
