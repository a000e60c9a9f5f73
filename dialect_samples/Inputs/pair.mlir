func.func @fine(%p: !pair.of<f32>) -> !pair.of<f32> {
  %0 = "pair.swap"(%p) : (!pair.of<f32>) -> !pair.of<f32>
  return %0 : !pair.of<f32>
}

// -----

func.func @two_types(%p: !pair.of<f32>) -> !pair.of<i32> {
  // expected-error@+1 {{expected '!pair.of<f32>' but got '!pair.of<i32>'}}
  %0 = "pair.swap"(%p) : (!pair.of<f32>) -> !pair.of<i32>
  return %0 : !pair.of<i32>
}
