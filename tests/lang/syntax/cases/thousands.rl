train main {
  steps   = 1,000
  batch   = groups(1,024, group_size = 8)
  save    = every(1,500, keep = 3)
  loss    = f([100,200,300], 16,8, 1,2345)
  budget  = $1,000
  metrics = [pass_at(1), pass_at(1,024)]
}
