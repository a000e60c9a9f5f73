irdl.dialect @cmath {
  irdl.type @complex {
    %f32 = irdl.is f32
    %f64 = irdl.is f64
    %either = irdl.any_of(%f32, %f64)
    irdl.parameters(element: %either)
  }
  irdl.operation @norm {
    %element = irdl.any
    %complex = irdl.parametric @cmath::@complex<%element>
    irdl.operands(in: %complex)
    irdl.results(out: %element)
  }
}
