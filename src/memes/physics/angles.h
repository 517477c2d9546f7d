// Computes the sine and cosine of an angle from polynomials of half the angle. Half the angle is first reduced to
// [-pi/2, pi/2].
FUNCTION V half_angle(V x) {
  V turns = down(x * 0.15915494309189535f + 0.5f);
  return 0.5f * ((x - turns * 6.28125f) - turns * 1.9353071795864769e-3f);
}
FUNCTION V half_sine(V h) {
  V s = h * h;
  return h * (1.f + s * (-1.66666667e-1f + s * (8.33333333e-3f + s * (-1.98412698e-4f +
         s * (2.75573192e-6f + s * -2.50521e-8f)))));
}
FUNCTION V half_cosine(V h) {
  V s = h * h;
  return 1.f + s * (-.5f + s * (4.16666667e-2f + s * (-1.38888889e-3f +
         s * (2.48015873e-5f + s * -2.7557319e-7f))));
}
FUNCTION V sine(V x) { V h = half_angle(x); return 2.f * half_sine(h) * half_cosine(h); }
FUNCTION V cosine(V x) { V s = half_sine(half_angle(x)); return 1.f - 2.f * s * s; }
