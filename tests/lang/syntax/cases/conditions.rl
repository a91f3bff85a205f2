# There are none: losses and rewards have `where()`.
loss before(high = 3) { token = if ratio > high then 0 else -ratio * adv }
loss after(high = 3) { token = -ratio * adv if ratio < high else 0 }
loss block(high = 3) { if ratio > high { token = 0 } }
loss question(high = 3) { token = ratio > high ? 0 : -ratio * adv }
